"""Check a result file: validate it, compute every number again from the records, and compare."""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .measure import Value, frames_of_oracle, measure_frames, measure_layers
from .schema import Layers, Run, SchemaError, ScreenRun, read
from .screen import contradictions, measure_screen

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

TOLERANCE = 1e-6
"""Numbers with a fraction may differ by this share; whole numbers may not differ at all."""


class Checker:
    """Checks runs one after the other, and remembers the oracle of streams that it has seen."""

    def __init__(self) -> None:
        """Start with no stream seen."""
        self._oracles: dict[object, int] = {}

    def problems(self, run: Run | ScreenRun) -> Iterator[str]:
        """Yield what is wrong with a run, one line each."""
        if isinstance(run, ScreenRun):
            wrong = list(contradictions(run))
            yield from wrong
            measured = {} if wrong else measure_screen(run)
        else:
            yield from _contradictions(run)
            measured = self._measure(run)
        for path, ours in measured.items():
            theirs = _at(run.metrics, path)
            if not _same(ours, theirs):
                yield f"{path}: the file says {theirs}, its records say {ours}"

    def _measure(self, run: Run) -> dict[str, Value]:
        if isinstance(run.source, Layers):
            return measure_layers(run, run.source)
        return measure_frames(run, run.source, self._oracle(run))

    def _oracle(self, run: Run) -> int:
        # Schemes share their stream and their link: the search is worth doing once.
        frames = tuple((record.generated_ns, record.size, record.refs) for record in run.records)
        link = (run.link.rate_bps, run.link.loss, run.link.delay_ms, run.link.steps)
        key = (frames, link, run.deadline_ms)
        if key not in self._oracles:
            self._oracles[key] = frames_of_oracle(run)
        return self._oracles[key]


def check_file(path: Path) -> tuple[int, list[str]]:
    """Check every run of a file; return how many there were and what is wrong with them."""
    checker = Checker()
    runs, problems = 0, list[str]()
    for runs, run in enumerate(read(path), start=1):
        problems.extend(f"run {runs} ({run.label()}): {problem}" for problem in checker.problems(run))
    return runs, problems


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line: 0 all agree, 1 something differs, 2 a file cannot be read."""
    parser = argparse.ArgumentParser(prog="freshwire-lab-check", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="result file of `freshwire-lab`")
    options = parser.parse_args(arguments)
    differs = False
    files: list[Path] = options.files
    for path in files:
        try:
            runs, problems = check_file(path)
        except (SchemaError, OSError) as error:
            print(f"freshwire-lab-check: {error}", file=sys.stderr)
            return 2
        for problem in problems:
            print(f"{path}: {problem}", file=sys.stderr)
        differs |= bool(problems)
        print(f"{path}: {runs} runs, {len(problems)} differences")
    return int(differs)


def _contradictions(run: Run) -> Iterator[str]:
    """Yield what cannot be true whatever was measured."""
    seen = -1
    for record in run.records:
        if record.seq <= seen:
            yield f"record {record.seq} does not come after record {seen}"
        seen = record.seq
        if record.arrived_ns is not None:
            if record.committed_ns is None:
                yield f"record {record.seq} arrived and was never begun"
            elif record.arrived_ns < record.committed_ns:
                yield f"record {record.seq} arrived before it was begun"
            if record.fate != "sent":
                yield f"record {record.seq} arrived and its fate is {record.fate!r}"
    in_time = sum(r.size for r in run.records if r.arrived_ns is not None and r.arrived_ns <= run.duration_s * 1e9)
    whole = sum(record.size for record in run.records if record.arrived_ns is not None)
    for name, more, less in (
        ("received_bytes holds the records that arrived in time", run.received_bytes, in_time),
        ("received_all_bytes holds the records that arrived", run.received_all_bytes, whole),
        ("received_all_bytes holds received_bytes", run.received_all_bytes, run.received_bytes),
        ("sent_bytes holds received_all_bytes", run.sent_bytes, run.received_all_bytes),
    ):
        if more < less:
            yield f"totals: {name}, but {more} is less than {less}"
    dropped = sum(record.fate.startswith(("dropped", "abandoned")) for record in run.records)
    if dropped != run.drops:
        yield f"sender.drops: the sender counts {run.drops}, its records say {dropped}"


def _at(metrics: Any, path: str) -> Any:  # noqa: ANN401
    for name in path.split("."):
        metrics = metrics.get(name) if isinstance(metrics, dict) else None  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    return metrics  # pyright: ignore[reportUnknownVariableType]


def _same(ours: Value, theirs: object) -> bool:
    if isinstance(ours, float) and isinstance(theirs, (int, float)):
        return math.isclose(ours, theirs, rel_tol=TOLERANCE, abs_tol=1e-9)
    return ours == theirs


if __name__ == "__main__":
    sys.exit(main())
