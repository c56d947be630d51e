"""Tests of the check of result files, on a file that the program itself wrote."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import tempfile
import unittest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from freshwire_lab.check import check_file, main
from freshwire_lab.measure import transfer_end
from freshwire_lab.schema import Link, SchemaError, read

if TYPE_CHECKING:
    from collections.abc import Callable

RUNS = Path(__file__).parent / "data" / "runs.jsonl"


def lines() -> list[dict[str, Any]]:
    """Parse the reference file without the code under test."""
    return [json.loads(line) for line in RUNS.read_text().splitlines()]


class CheckTest(unittest.TestCase):
    """The check agrees with a true file and catches a false one."""

    def setUp(self) -> None:
        """Prepare a place for changed files."""
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.path = Path(directory.name) / "runs.jsonl"

    def problems(self, *changed: dict[str, Any]) -> str:
        """Write the lines to a file and check it."""
        self.path.write_text("".join(json.dumps(line) + "\n" for line in changed))
        return "\n".join(check_file(self.path)[1])

    def test_the_program_and_the_lab_agree(self) -> None:
        """Every number of the reference file follows from its records here too."""
        self.assertEqual(check_file(RUNS), (4, []))
        with contextlib.redirect_stdout(io.StringIO()) as output:
            self.assertEqual(main([str(RUNS)]), 0)
        self.assertIn("4 runs, 0 differences", output.getvalue())

    def test_a_number_that_does_not_follow_is_found(self) -> None:
        """Any of them."""
        for place, line in enumerate(lines()):
            metrics = line["data"]["metrics"]
            numbers = [(metrics, name) for name, value in metrics.items() if isinstance(value, (int, float))]
            for part in ("delay", "age", "freezes", "start_up", "transit"):
                numbers += [(metrics[part], name) for name in metrics.get(part, {})]
            self.assertGreater(len(numbers), 10)
            for owner, name in numbers:
                with self.subTest(run=place, number=name):
                    kept, owner[name] = owner[name], (owner[name] or 0) * 1.01 + 1
                    self.assertIn(name, self.problems(line))
                    owner[name] = kept

    def test_a_record_that_was_touched_is_found(self) -> None:
        """Moving one arrival past its deadline changes what follows."""
        line = lines()[0]
        record = next(r for r in line["data"]["records"] if r["arrived_ns"] is not None)
        record["arrived_ns"] += 5_000_000_000
        self.assertIn("on_time_bytes", self.problems(line))

    def test_contradictions_are_found(self) -> None:
        """Things that cannot be, whatever was measured."""
        for field, value, message in (
            ("committed_ns", None, "arrived and was never begun"),
            ("committed_ns", 10**15, "arrived before it was begun"),
            ("fate", "dropped: late", "arrived and its fate is 'dropped: late'"),
            ("seq", 10**6, "does not come after"),
        ):
            with self.subTest(message):
                line = copy.deepcopy(lines()[0])
                next(r for r in line["data"]["records"] if r["arrived_ns"] is not None)[field] = value
                self.assertIn(message, self.problems(line))
        line = lines()[0]
        line["data"]["totals"]["received_bytes"] = 1
        self.assertIn("received_bytes holds the records", self.problems(line))

    def test_what_is_no_result_file_is_said(self) -> None:
        """With the line and the field."""
        good = lines()[0]
        changes: tuple[tuple[Callable[[Any], object], str], ...] = (
            (lambda line: line.update(schema=2), "line 2: schema 2 is not known"),
            (lambda line: line.update(type="jog"), "line 2: type 'jog' is not known"),
            (lambda line: line["data"]["plan"].pop("link"), "line 2.data.plan.link: expected an object"),
            (
                lambda line: line["data"]["totals"].update(sent_bytes=-1),
                "line 2.data.totals.sent_bytes: expected at least 0",
            ),
            (
                lambda line: line["data"]["records"][3].update(seq="x"),
                "line 2.data.records[3].seq: expected a whole number",
            ),
            (lambda line: line["data"]["records"][3].update(seq=True), "found True"),
        )
        for change, message in changes:
            with self.subTest(message):
                bad = copy.deepcopy(good)
                change(bad)
                with self.assertRaises(SchemaError) as caught:
                    self.problems(good, bad)
                self.assertIn(message, str(caught.exception))
        self.path.write_text(json.dumps(good))
        with self.assertRaisesRegex(SchemaError, "line 1: the line has no end"):
            list(read(self.path))

    def test_the_exit_code_says_what_happened(self) -> None:
        """1 for a difference, 2 for a file that cannot be read."""
        line = lines()[0]
        line["data"]["metrics"]["ideal_bytes"] += 1
        self.problems(line)
        errors = io.StringIO()
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(errors):
            self.assertEqual(main([str(self.path)]), 1)
            self.assertEqual(main([str(self.path.with_name("missing"))]), 2)
        self.assertIn("ideal_bytes: the file says", errors.getvalue())
        self.assertIn("missing", errors.getvalue())

    def test_a_transfer_crosses_changes_of_the_rate(self) -> None:
        """The same hand-computed cases as in the program's own tests."""
        link = Link(1_500_000, 0.0, 0.0, 1, ((500_000_000, 150_000), (1_500_000_000, None)))
        self.assertAlmostEqual(transfer_end(link, 0, 99_550), 1e9, places=3)
        self.assertAlmostEqual(transfer_end(link, 0, 200_000), 1.5e9, places=3)
        self.assertEqual(transfer_end(link, 1.6e9, 200_000), 1.6e9)
