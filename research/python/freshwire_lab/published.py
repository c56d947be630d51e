"""Published numbers: condense result files, and compute every number of the documents again from them.

`check` compares `docs/benchmarks.md`, the table in `docs/push.md` and the sentences of `README.md` with
`research/published`. It finds tables of measurements without a result file in all documents but the lab notebook.
`write` puts the tables there.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from . import check as raw_check
from . import state as raw_state
from .schema import SchemaError
from .tables import CLAIMS, TABLES, TableError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Json: TypeAlias = dict[str, Any]

BENCHMARKS = Path("docs/benchmarks.md")
PAGES = (BENCHMARKS, Path("docs/push.md"))
"""The documents that have tables."""
RESULTS = Path("research/published")
RAW = ("records", "pictures", "arrivals", "observed", "units", "ssim", "shown")
"""Fields that hold every record of a run. They are checked while a file is condensed, and left out of it."""
MEASUREMENT = re.compile(r"[\d.,/]*\d\*{0,2}( ?(%|[a-zµ]{1,3}(/\w+)?))?( [\[(].*[\])])?")
"""A number, perhaps with its unit and its range."""


class PublishedError(Exception):
    """A document or a result file cannot be read."""


def read(folder: Path) -> dict[str, list[Json]]:
    """Read every published file: the runs by the name of their file."""
    runs: dict[str, list[Json]] = {}
    for path in sorted(folder.glob("*.jsonl")):
        try:
            runs[path.stem] = [json.loads(line) for line in path.read_text().splitlines()]
        except ValueError as error:
            message = f"{path}: {error}"
            raise PublishedError(message) from error
    if not runs:
        message = f"{folder} has no result file"
        raise PublishedError(message)
    return runs


def block(name: str) -> re.Pattern[str]:
    """Find the part of a document that belongs to a table."""
    return re.compile(rf"(<!-- results: {re.escape(name)} -->\n).*?(<!-- end -->)", re.DOTALL)


def tables(runs: dict[str, list[Json]]) -> dict[str, str]:
    """Compute every table that has a result file."""
    there = {name: table(runs[source]) for name, (source, table) in TABLES.items() if source in runs}
    return {name: "\n".join(lines) + "\n" for name, lines in there.items()}


def problems(root: Path) -> Iterator[str]:
    """Yield every difference between documents and results, one line each."""
    runs = read(root / RESULTS)
    document = (root / BENCHMARKS).read_text()
    pages = "".join((root / page).read_text() for page in PAGES)
    texts = tables(runs)
    for name, text in texts.items():
        found = block(name).search(pages)
        if found is None:
            yield f"{BENCHMARKS}: table {name} is missing"
            continue
        there = pages[found.end(1) : found.start(2)]
        yield from differences(name, there.splitlines(), text.splitlines())
    for name in re.findall(r"<!-- results: (\S+) -->", pages):
        if name not in texts:
            yield f"{BENCHMARKS}: no result file stands behind table {name}"
    yield from strays(BENCHMARKS, document)
    for path in sorted({root / "README.md", *(root / "docs").glob("*.md")} - {root / BENCHMARKS}):
        measured = [line for line in path.read_text().splitlines() if is_measured(line) or "<!-- " in line]
        yield from strays(path.relative_to(root), "\n".join(measured))
    for path, source, sentence in CLAIMS:
        if source not in runs:
            yield f"{path}: {RESULTS}/{source}.jsonl is missing"
            continue
        wanted = sentence(runs[source])
        if wanted not in " ".join((root / path).read_text().split()):
            yield f"{path}: the results say: {wanted}"
    used = {source for source, _ in TABLES.values()} | {source for _, source, _ in CLAIMS}
    for name in sorted(set(runs) - used):
        yield f"{RESULTS}/{name}.jsonl: no document uses it"


def differences(name: str, there: Sequence[str], wanted: Sequence[str]) -> Iterator[str]:
    """Yield the lines in which a table differs from what the results say."""
    for place in range(max(len(there), len(wanted))):
        ours = wanted[place] if place < len(wanted) else "no line"
        theirs = there[place] if place < len(there) else "no line"
        if ours != theirs:
            yield f"{BENCHMARKS}, table {name}: the document says {theirs!r}, the results say {ours!r}"


def is_measured(line: str) -> bool:
    """Say whether a row of a table has measurements alone in at least half of its cells behind the first."""
    cells = [cell.strip(" *") for cell in line.strip("|").split("|")[1:]]
    found = [cell for cell in cells if MEASUREMENT.fullmatch(cell)]
    return line.startswith("|") and bool(found) and 2 * len(found) >= len(cells)


def strays(path: Path, document: str) -> Iterator[str]:
    """Yield rows of tables that no result file stands behind."""
    rest = re.sub(r"<!-- results: .*?<!-- end -->", "", document, flags=re.DOTALL)
    for line in rest.splitlines():
        if line.startswith("|") and re.search(r"(?<![\w-])\d", line):
            yield f"{path}: no result file stands behind the row {line!r}; the lab notebook is the place of such tables"


def write(root: Path) -> None:
    """Put every table into its document, where its markers are."""
    texts = tables(read(root / RESULTS))
    for path in (root / page for page in PAGES):
        document = path.read_text()
        for name, text in texts.items():
            document = block(name).sub(lambda found, text=text: found[1] + text + found[2], document)
        path.write_text(document)


def condense(files: Sequence[Path], out: Path, date: str, commit: str | None = None) -> None:
    """Check result files by their records, and keep all but these; name the commit where a file does not."""
    extra = {"date": date} if commit is None else {"date": date, "commit": commit}
    lines: list[str] = []
    for path in files:
        if path.name == "result.json":
            lines.append(json.dumps(without_records({"type": "demo", **extra, **json.loads(path.read_text())})))
            continue
        text = path.read_text()
        if '-dirty"' in text:
            message = f"{path}: measured with uncommitted changes; commit them and repeat the run"
            raise PublishedError(message)
        runs = [json.loads(line) for line in text.splitlines()]
        for problem in checked(path, {run["type"] for run in runs}):
            message = f"{path}: {problem}"
            raise PublishedError(message)
        lines += [json.dumps({**extra, **without_records(run)}) for run in runs]
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text("".join(line + "\n" for line in lines))


def checked(path: Path, types: set[str]) -> list[str]:
    """Compute every number of a file again from its records, where a file of its kind has them."""
    if types == {"state"}:
        return raw_state.check_file(path)[1]
    if types <= {"run", "screen"}:
        return raw_check.check_file(path)[1]
    return []


def without_records(value: Any) -> Any:  # noqa: ANN401
    """Leave out what a run has of every record."""
    if isinstance(value, dict):
        items: Json = value
        return {key: without_records(item) for key, item in items.items() if not is_raw(key, item)}
    if isinstance(value, list):
        return [without_records(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
    return value


def is_raw(key: Any, item: Any) -> bool:  # noqa: ANN401
    """Say whether a field holds every record; the demo's drops do, and those of the lab count by reason."""
    return key in RAW or (key == "drops" and isinstance(item, list))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line: 0 all agree, 1 something differs, 2 a file cannot be read."""
    parser = argparse.ArgumentParser(prog="freshwire-lab-published", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    texts = {"check": "compare the documents with the results", "write": "put the tables into the document"}
    for name, text in texts.items():
        commands.add_parser(name, help=text).add_argument("--root", type=Path, default=Path())
    condensing = commands.add_parser("condense", help="check result files and keep them without their records")
    condensing.add_argument("files", nargs="+", type=Path, metavar="FILE")
    condensing.add_argument("--out", type=Path, required=True)
    condensing.add_argument("--date", required=True, help="the day of the measurement, such as 2026-11-27")
    condensing.add_argument("--commit", help="the commit that was measured, for files that do not name it")
    options = parser.parse_args(arguments)
    try:
        if options.command == "condense":
            condense(options.files, options.out, options.date, options.commit)
            return 0
        if options.command == "write":
            write(options.root)
            return 0
        found = list(problems(options.root))
    except (PublishedError, TableError, SchemaError, raw_state.StateError, OSError, ValueError, KeyError) as error:
        print(f"freshwire-lab-published: {error!r}", file=sys.stderr)
        return 2
    for problem in found:
        print(problem, file=sys.stderr)
    print(f"{len(found)} differences between documents and results")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
