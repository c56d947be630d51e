"""The tables and figures of the five publications: publish results, and compute every row again.

`freshwire-lab evidence` measures and writes `rows.jsonl`. `publish` checks a folder of its results and keeps them in
`research/published/evidence`, with a report. `check` computes every row, claim and the report again from what is kept
there and from the catalogue, and fails on a difference. It shares no code with the laboratory.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tomllib
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, TypeAlias

from .published import checked, without_records

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Json: TypeAlias = dict[str, Any]
Points: TypeAlias = "list[tuple[float, float, float, float]]"
"""Place on the axis, median, least, most."""

CATALOGUE = Path("research/evidence")
PUBLISHED = Path("research/published/evidence")
FORMS = ("short", "long")
CLOSE = 1e-9
"""Relative difference of two computations of the same number."""
MOST_POINTS = 4
"""More points than this are a curve, of which the report has the range."""


class EvidenceError(Exception):
    """The results cannot be published, or cannot be read."""


def catalogue(root: Path) -> dict[str, Json]:
    """Read every item, by the name of its file."""
    paths = sorted((root / CATALOGUE).glob("*.toml"))
    return {path.stem: tomllib.loads(path.read_text()) for path in paths if path.stem != "contents"}


def read(path: Path) -> list[Json]:
    """Read a result file."""
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


def at(line: Any, path: str) -> Any:  # noqa: ANN401
    """Give the value at a path of keys and places; none where there is none."""
    value = line.get("data", line)
    for key in path.split("."):
        if isinstance(value, list):
            place = int(key) if key.isdigit() else len(value)  # pyright: ignore[reportUnknownArgumentType]
            value = value[place] if place < len(value) else None  # pyright: ignore[reportUnknownArgumentType]
        else:
            value = value.get(key) if isinstance(value, dict) else None
    return value


def is_number(value: Any) -> bool:  # noqa: ANN401
    """Say whether JSON has a number here."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def fits(element: Json, wanted: Json, x: float | None) -> bool:
    """Say whether a line has all these values."""
    for path, value in wanted.items():
        there = at(element, path)
        if there is None:
            there = "none"
        text = f"{x:.15g}" if x is not None else "{x}"
        if there != (value.replace("{x}", text) if isinstance(value, str) else value):
            return False
    return True


def points_of(row: Json, lines: Sequence[Json]) -> Points:
    """Compute the points of a row from its lines alone."""
    elements: list[tuple[Json, bool]] = []
    for line in lines:
        trusted = at(line, "trust.trustworthy") is not False
        inner = at(line, row["each"]) if "each" in row else [line]
        elements += [(element, trusted) for element in inner or []]
    samples: dict[float, list[tuple[float, bool]]] = {}
    x = row.get("x")
    for place in x if isinstance(x, list) else [None]:  # pyright: ignore[reportUnknownVariableType]
        for element, trusted in (pair for pair in elements if fits(pair[0], row.get("where", {}), place)):
            value = at(element, row["y"])
            if isinstance(value, list):
                for number, one in enumerate(value, 1):  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
                    pair: Any = one if isinstance(one, list) else [number, one]
                    samples.setdefault(float(pair[0]), []).append((float(pair[1]), trusted))
            elif is_number(value):
                on_axis = at(element, x) if isinstance(x, str) else place
                samples.setdefault(1.0 if on_axis is None else float(on_axis), []).append((float(value), trusted))
    # Results of a busy machine count where there is no other.
    counting = {x: [y for y, trusted in of_x if trusted] or [y for y, _ in of_x] for x, of_x in samples.items()}
    scale = row.get("scale", 1)
    order = sorted(counting) if isinstance(x, str) else list(counting)
    return [(x, *(scale * of(counting[x]) for of in (median, min, max))) for x in order]


def related(own: Points, other: Points, *, below: bool) -> Points:
    """Divide by another row, or tell how many per cent below it the row is."""
    partner = {point[0]: point[1] for point in other}
    result: Points = []
    for x, *values in own:
        theirs = other[0][1] if len(other) == 1 else partner.get(x)
        if theirs is None:
            continue
        y, one, two = (100 * (1 - value / theirs) if below else value / theirs for value in values)
        result.append((x, y, min(one, two), max(one, two)))
    return result


def rows_of(item: Json, lines: dict[str, list[Json]]) -> dict[str, Points]:
    """Compute every row of an item whose runs are there."""
    own = {row["name"]: points_of(row, lines.get(row.get("run", item["run"][0]["name"]), [])) for row in item["row"]}
    result: dict[str, Points] = {}
    for row in item["row"]:
        other = row.get("over", row.get("below"))
        result[row["name"]] = related(own[row["name"]], own[other], below="below" in row) if other else own[row["name"]]
    return result


def holds(claim: Json, rows: dict[str, Points]) -> bool | None:
    """Judge a claim; none where a row has no numbers."""
    values = [point[1] for point in rows[claim["row"]]]
    if not values:
        return None
    if "above" in claim:
        if not rows[claim["above"]]:
            return None
        other = rows[claim["above"]]
        theirs = {point[0]: point[1] for point in other}
        pairs = [(y, other[0][1] if len(other) == 1 else theirs.get(x)) for x, y, _, _ in rows[claim["row"]]]
        known = [(y, floor) for y, floor in pairs if floor is not None]
        return bool(known) and all(y >= claim.get("times", 1) * floor for y, floor in known)
    if "between" in claim:
        return all(claim["between"][0] <= value <= claim["between"][1] for value in values)
    allowed = claim.get("slack", 0) * abs(max(values))
    if claim["order"] == "flat":
        return max(values) - min(values) <= allowed
    sign = 1 if claim["order"] == "rises" else -1
    steps = [sign * (after - before) for before, after in zip(values, values[1:], strict=False)]
    return sign * (values[-1] - values[0]) > 0 and all(step >= -allowed for step in steps)


def same(one: float, other: float) -> bool:
    """Say whether two computations agree."""
    return abs(one - other) <= CLOSE * max(1.0, abs(one), abs(other))


def problems(root: Path) -> Iterator[str]:
    """Yield every difference between what is published and what follows from it."""
    items = catalogue(root)
    for form in FORMS:
        folder = root / PUBLISHED / form
        if not folder.is_dir():
            continue
        lines = {path.stem: read(path) for path in sorted(folder.glob("*.jsonl")) if path.stem != "rows"}
        origins = json.loads((folder / "origins.json").read_text())
        yield from (f"{folder}: {name}.jsonl has no origin" for name in sorted(set(lines) - set(origins)))
        for name in (name for name in origins if origins[name]["dirty"]):
            yield f"{folder}: {name} was measured with uncommitted changes"
        yield from stale(items, origins, form)
        known: dict[tuple[str, str], Json] = {}
        for line in read(folder / "rows.jsonl"):
            known[line["data"]["item"], line["data"].get("row", line["data"].get("says"))] = line
        for name, item in items.items():
            rows = rows_of(item, lines)
            yield from differences(name, item, rows, known, is_short=form == "short")
        yield from (f"{form}: {item}, {what!r} does not follow from a result" for item, what in known)
    wanted = report(root)
    written = root / PUBLISHED / "report.md"
    if not written.is_file() or written.read_text() != wanted:
        yield f"{written}: differs from what the results say; `python3 -m freshwire_lab.evidence write` makes it"


def stale(items: dict[str, Json], origins: Json, form: str) -> Iterator[str]:
    """Yield results whose command is no longer the catalogue's."""
    runs = [run for item in items.values() for run in item["run"]]
    commands = {run["name"]: run.get("short") if form == "short" else run["commands"] for run in runs}
    for name, origin in origins.items():
        if origin["commands"] != commands.get(name):
            yield f"{form}: the result {name} was made by another command than the catalogue has"


def agree(ours: Points, theirs: Points) -> bool:
    """Say whether two lists of points are the same."""
    pairs = zip(ours, theirs, strict=False)
    return len(ours) == len(theirs) and all(same(*ab) for one, two in pairs for ab in zip(one, two, strict=True))


def differences(
    name: str, item: Json, rows: dict[str, Points], known: dict[tuple[str, str], Json], *, is_short: bool
) -> Iterator[str]:
    """Compare an item's rows and claims with those that the laboratory wrote, and take them out of `known`."""
    for row in item["row"]:
        points = rows[row["name"]]
        line = known.pop((name, row["name"]), None)
        theirs = line["data"]["points"] if line else []
        if not agree(points, theirs):
            yield f"{name}, {row['name']}: the result gives {points}, the laboratory wrote {theirs}"
    for claim in item.get("claim", []):
        line = known.pop((name, claim["says"]), None)
        theirs = line["data"]["holds"] if line else None
        ours = None if is_short and claim.get("long") else holds(claim, rows)
        if ours != theirs:
            yield f"{name}, {claim['says']!r}: {ours} by the results, the laboratory wrote {theirs}"


def number(value: float) -> str:
    """Print three digits that say something."""
    size = abs(value)
    digits = 0 if size >= 100 else 1 if size >= 10 else 2 if size >= 0.1 or size == 0 else 4
    return f"{value:.{digits}f}"


def cells(values: Sequence[float]) -> str:
    """Print the values of a row, or their range."""
    if len(values) > MOST_POINTS:
        return f"{number(min(values))} to {number(max(values))}"
    return ", ".join(number(value) for value in values) or "–"


def report(root: Path) -> str:
    """Write what is published as a page: each item once, in its long form where there is one."""
    out = ["# The five publications, measured again", ""]
    out += ["Written by `python3 -m freshwire_lab.evidence write` from the files beside it.", ""]
    items = catalogue(root)
    folders = {form: root / PUBLISHED / form for form in FORMS if (root / PUBLISHED / form).is_dir()}
    lines: dict[str, dict[str, list[Json]]] = {}
    for form, folder in folders.items():
        lines[form] = {path.stem: read(path) for path in folder.glob("*.jsonl") if path.stem != "rows"}
    origins = {form: json.loads((folder / "origins.json").read_text()) for form, folder in folders.items()}
    for name, item in items.items():
        names = [f"{one['publication']}, {one['item']}" for one in (item, *item.get("same", []))]
        out += [f"## {' = '.join(names)}", "", item["shows"], ""]
        runs = [run["name"] for run in item["run"]]
        form = next((form for form in ("long", "short") if any(run in lines.get(form, {}) for run in runs)), None)
        if form is None:
            out += [f"No published result yet: `{item['run'][0]['commands'][0]}`.", ""]
            continue
        rows = rows_of(item, lines[form])
        out += ["| row | unit | published | ours | ratio |", "|---|---|---|---|---|"]
        for row in item["row"]:
            values = [point[1] for point in rows[row["name"]]]
            published = row.get("published", [])
            published = published if isinstance(published, list) else [published]
            ratios = [ours / theirs for ours, theirs in zip(values, published, strict=False)]
            out.append(f"| {row['name']} | {row['unit']} | {cells(published)} | {cells(values)} | {cells(ratios)} |")
        out.append("")
        for claim in item.get("claim", []):
            judged = None if form == "short" and claim.get("long") else holds(claim, rows)
            verdict = {True: "holds", False: "**does not hold**", None: "not judged"}[judged]
            out.append(f"- {claim['says']}: {verdict}")
        out += ["", item["why"], ""]
        for run in runs:
            if run in origins[form]:
                out += [origin_line(origins[form][run], form), ""]
            else:
                out += [f"`{run}`: no published result in this form.", ""]
    return "\n".join(out).rstrip() + "\n"


def origin_line(origin: Json, form: str) -> str:
    """Say where and how a result was made."""
    before, after = origin["load"]
    commands = "; ".join(f"`{command}`" for command in origin["commands"])
    build = "" if origin["release"] else " (debug build)"
    return (
        f"{form.capitalize()} form, {origin['date']}, commit {origin['commit']}{build}, {origin['cpu']}, {origin['cores']} cores, "
        f"Linux {origin['kernel'].split('-')[0]}, load {before:.1f} to {after:.1f}: {commands}"
    )


def publish(root: Path, source: Path, form: str, date: str) -> None:
    """Keep the results of a folder: checked by their records, without them, each with its origin."""
    folder = root / PUBLISHED / form
    folder.mkdir(parents=True, exist_ok=True)
    files = {run["name"]: run.get("file", "results.jsonl") for item in catalogue(root).values() for run in item["run"]}
    kept = folder / "origins.json"
    origins: Json = json.loads(kept.read_text()) if kept.is_file() else {}
    for path in sorted(source.glob("*/origin.json")):
        origin = json.loads(path.read_text())
        name = origin["run"]
        if origin["dirty"]:
            message = f"{name} was measured with uncommitted changes; commit them, delete {path.parent} and repeat the run"
            raise EvidenceError(message)
        result = path.parent / files[name]
        if '-dirty"' in result.read_text():
            message = f"{result}: has runs with uncommitted changes; delete {path.parent} and repeat the run"
            raise EvidenceError(message)
        lines = read(result)
        for problem in checked(result, {line.get("type", "") for line in lines}):
            message = f"{result}: {problem}"
            raise EvidenceError(message)
        text = "".join(json.dumps(without_records(line)) + "\n" for line in lines)
        (folder / f"{name}.jsonl").write_text(text)
        origins[name] = {**origin, "date": date}
    kept.write_text(json.dumps(origins, indent=1, sort_keys=True) + "\n")
    shutil.copy(source / "rows.jsonl", folder / "rows.jsonl")
    write(root)


def write(root: Path) -> None:
    """Write the report."""
    (root / PUBLISHED / "report.md").write_text(report(root))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line: 0 all agree, 1 something differs, 2 something cannot be read or published."""
    parser = argparse.ArgumentParser(prog="freshwire-lab-evidence", description=__doc__)
    parser.add_argument("--root", type=Path, default=Path())
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("check", help="compute every row and the report again")
    commands.add_parser("write", help="write the report")
    publishing = commands.add_parser("publish", help="check results and keep them")
    publishing.add_argument("folder", type=Path, help="what `freshwire-lab evidence --out` has written")
    publishing.add_argument("--form", choices=FORMS, required=True)
    publishing.add_argument("--date", required=True, help="the day of the measurement, such as 2026-11-28")
    options = parser.parse_args(arguments)
    try:
        if options.command == "publish":
            publish(options.root, options.folder, options.form, options.date)
        elif options.command == "write":
            write(options.root)
        found = list(problems(options.root))
    except (EvidenceError, OSError, ValueError, KeyError) as error:
        print(f"freshwire-lab-evidence: {error!r}", file=sys.stderr)
        return 2
    for problem in found:
        print(problem, file=sys.stderr)
    print(f"{len(found)} differences between evidence and results")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
