"""The result file of the lab, schema 1: JSON Lines, one run to a line, validated while it is read."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, cast

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SCHEMA = 1

Json: TypeAlias = dict[str, Any]


class SchemaError(Exception):
    """A result file is not what the schema says; the message names the line and the field."""


@dataclass(frozen=True)
class Link:
    """An emulated path in the direction of the data."""

    rate_bps: int | None
    loss: float
    delay_ms: float
    seed: int
    steps: tuple[tuple[int, int | None], ...]
    """Later changes of the rate: nanoseconds from the start, bits per second."""


@dataclass(frozen=True)
class Layers:
    """The layered source."""

    layers: int
    record_bytes: int
    window_ms: int


@dataclass(frozen=True)
class Frames:
    """The source of video-like frames."""

    fps: float


@dataclass(frozen=True)
class Record:
    """What became of one offered record; times in nanoseconds from the start of the run."""

    seq: int
    group: int
    layer: int
    size: int
    generated_ns: int
    committed_ns: int | None
    arrived_ns: int | None
    fate: str
    refs: tuple[int, ...]


@dataclass(frozen=True)
class Run:
    """One line of a result file."""

    experiment: str
    scheme: str
    congestion: str
    framing: str
    link: Link
    source: Layers | Frames
    deadline_ms: float
    duration_s: float
    received_bytes: int
    received_all_bytes: int
    sent_bytes: int
    drops: int
    records: tuple[Record, ...]
    metrics: Json

    def label(self) -> str:
        """Name the run for a message."""
        return f"{self.experiment} {self.scheme} {self.congestion} seed {self.link.seed}"


@dataclass(frozen=True)
class Picture:
    """A picture and what became of it; times in nanoseconds of the source's clock."""

    captured_ns: int
    offered_ns: int
    size: int
    refs: tuple[int | None, ...]
    """Positions of the pictures that it refers to; none is one from before the first."""
    arrived_ns: int | None


@dataclass(frozen=True)
class ScreenRun:
    """One line of a result file of `freshwire-lab screen`."""

    stream: str
    scheme: str
    link: Link
    begin_ns: int
    """When the screen is empty."""
    from_ns: int
    """From when on it counts."""
    until_ns: int
    pictures: tuple[Picture, ...]
    received_bytes: int
    metrics: Json

    def label(self) -> str:
        """Name the run for a message."""
        return f"screen {self.stream} {self.scheme} seed {self.link.seed}"


class _Object:
    """A JSON object that says where it stands when a field is missing or of the wrong kind."""

    def __init__(self, value: object, where: str) -> None:
        if not isinstance(value, dict):
            message = f"{where}: expected an object"
            raise SchemaError(message)
        self._value = cast("Json", value)
        self._where = where

    def _take(self, name: str, kinds: tuple[type, ...], expected: str) -> Any:  # noqa: ANN401
        value = self._value.get(name)
        # A boolean is an int in Python, and not in JSON.
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            found = "nothing" if name not in self._value else repr(value)[:40]
            message = f"{self._where}.{name}: expected {expected}, found {found}"
            raise SchemaError(message)
        return value

    def object(self, name: str) -> _Object:
        return _Object(self._value.get(name), f"{self._where}.{name}")

    def raw(self, name: str) -> Json:
        return self._take(name, (dict,), "an object")

    def objects(self, name: str) -> Iterator[_Object]:
        values: list[object] = self._take(name, (list,), "a list") if name in self._value else []
        return (_Object(value, f"{self._where}.{name}[{place}]") for place, value in enumerate(values))

    def text(self, name: str) -> str:
        return self._take(name, (str,), "text")

    def flag(self, name: str) -> bool:
        return self._take(name, (bool,), "true or false")

    def number(self, name: str) -> float:
        return float(self._take(name, (int, float), "a number"))

    def count(self, name: str) -> int:
        value: int = self._take(name, (int,), "a whole number")
        if value < 0:
            message = f"{self._where}.{name}: expected at least 0, found {value}"
            raise SchemaError(message)
        return value

    def maybe_count(self, name: str) -> int | None:
        return None if self._value.get(name) is None else self.count(name)

    def counts(self, name: str) -> tuple[int, ...]:
        values: list[object] = self._take(name, (list,), "a list") if name in self._value else []
        return tuple(_Object({name: value}, self._where).count(name) for value in values)

    def maybe_counts(self, name: str) -> tuple[int | None, ...]:
        values: list[object] = self._take(name, (list,), "a list") if name in self._value else []
        return tuple(_Object({name: value}, self._where).maybe_count(name) for value in values)


def read(path: Path) -> Iterator[Run | ScreenRun]:
    """Read the runs of a result file one by one; raise `SchemaError` at the first line that is not one."""
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            where = f"{path}, line {number}"
            if not line.endswith(b"\n"):
                message = f"{where}: the line has no end, its run was interrupted"
                raise SchemaError(message)
            try:
                value: object = json.loads(line)
            except ValueError as error:
                message = f"{where}: not JSON: {error}"
                raise SchemaError(message) from error
            yield _run(value, where)


def _run(value: object, where: str) -> Run | ScreenRun:
    line = _Object(value, where)
    if (schema := line.count("schema")) != SCHEMA:
        message = f"{where}: schema {schema} is not known here; this program reads schema {SCHEMA}"
        raise SchemaError(message)
    if (kind := line.text("type")) not in ("run", "screen"):
        message = f"{where}: type {kind!r} is not known here"
        raise SchemaError(message)
    data = line.object("data")
    environment = data.object("environment")
    for name in ("commit", "kernel", "cpu", "freshwire", "command"):
        environment.text(name)
    data.object("trust").flag("trustworthy")
    return _record_run(data, where) if kind == "run" else _screen_run(data)


def _screen_run(data: _Object) -> ScreenRun:
    plan = data.object("plan")
    window = data.object("window")
    return ScreenRun(
        stream=plan.object("stream").text("name"),
        scheme=plan.text("scheme"),
        link=_link(plan.object("link")),
        begin_ns=window.count("begin_ns"),
        from_ns=window.count("from_ns"),
        until_ns=window.count("until_ns"),
        pictures=tuple(_picture(picture) for picture in data.objects("pictures")),
        received_bytes=data.count("received_bytes"),
        metrics=data.raw("metrics"),
    )


def _picture(picture: _Object) -> Picture:
    return Picture(
        captured_ns=picture.count("captured_ns"),
        offered_ns=picture.count("offered_ns"),
        size=picture.count("bytes"),
        refs=picture.maybe_counts("refs"),
        arrived_ns=picture.maybe_count("arrived_ns"),
    )


def _record_run(data: _Object, where: str) -> Run:
    plan = data.object("plan")
    totals = data.object("totals")
    return Run(
        experiment=plan.text("experiment"),
        scheme=plan.text("scheme"),
        congestion=plan.text("congestion"),
        framing=plan.text("framing"),
        link=_link(plan.object("link")),
        source=_source(plan.object("source"), where),
        deadline_ms=plan.number("deadline_ms"),
        duration_s=plan.number("duration_s"),
        received_bytes=totals.count("received_bytes"),
        received_all_bytes=totals.count("received_all_bytes"),
        sent_bytes=totals.count("sent_bytes"),
        drops=sum(data.object("sender").raw("drops").values()),
        records=tuple(_record(record) for record in data.objects("records")),
        metrics=data.raw("metrics"),
    )


def _link(link: _Object) -> Link:
    return Link(
        rate_bps=link.maybe_count("rate_bps"),
        loss=link.number("loss"),
        delay_ms=link.number("delay_ms"),
        seed=link.count("seed"),
        steps=tuple((step.count("at_ns"), step.maybe_count("rate_bps")) for step in link.objects("steps")),
    )


def _source(source: _Object, where: str) -> Layers | Frames:
    match source.text("kind"):
        case "layers":
            return Layers(source.count("layers"), source.count("record_bytes"), source.count("window_ms"))
        case "frames":
            return Frames(source.number("fps"))
        case kind:
            message = f"{where}: source {kind!r} is not known here"
            raise SchemaError(message)


def _record(record: _Object) -> Record:
    record.count("deadline_ns")
    return Record(
        seq=record.count("seq"),
        group=record.count("group"),
        layer=record.count("layer"),
        size=record.count("bytes"),
        generated_ns=record.count("generated_ns"),
        committed_ns=record.maybe_count("committed_ns"),
        arrived_ns=record.maybe_count("arrived_ns"),
        fate=record.text("fate"),
        refs=record.counts("refs"),
    )
