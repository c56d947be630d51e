"""Tests of the check of `freshwire-lab state`, on a file that the program itself wrote."""

from __future__ import annotations

import contextlib
import io
import json
import tempfile
import unittest
from pathlib import Path
from typing import Any

from freshwire_lab.state import StateError, check_file, main

RUNS = Path(__file__).parent / "data" / "state.jsonl"


class StateTest(unittest.TestCase):
    """The check agrees with a true file and catches a false one."""

    def setUp(self) -> None:
        """Prepare a place for changed files."""
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.path = Path(directory.name) / "state.jsonl"
        self.lines: list[dict[str, Any]] = [json.loads(line) for line in RUNS.read_text().splitlines()]

    def check(self) -> str:
        """Write the lines to a file and check it."""
        self.path.write_text("".join(json.dumps(line) + "\n" for line in self.lines))
        return "\n".join(check_file(self.path)[1])

    def test_the_program_and_the_lab_agree(self) -> None:
        """Every number of the reference file follows from what was read."""
        self.assertEqual(check_file(RUNS), (3, []))
        with contextlib.redirect_stdout(io.StringIO()) as output:
            self.assertEqual(main([str(RUNS)]), 0)
        self.assertIn("3 runs, 0 differences", output.getvalue())

    def test_a_number_that_does_not_follow_is_found(self) -> None:
        """Any of them."""
        for place, line in enumerate(self.lines):
            metrics = line["data"]["metrics"]
            for name in metrics:
                with self.subTest(run=place, number=name):
                    kept, metrics[name] = metrics[name], (metrics[name] or 0) * 1.01 + 1
                    self.assertIn(f"{name}: the file says", self.check())
                    metrics[name] = kept

    def test_what_cannot_be_is_no_run(self) -> None:
        """A value of an object that is not there, one from the future, and another file."""
        arrivals = self.lines[0]["data"]["arrivals"]
        for column, value in (("keys", 2), ("ticks", 19)):
            kept, arrivals[column][0] = arrivals[column][0], value
            with self.subTest(column=column), self.assertRaises(StateError):
                self.check()
            arrivals[column][0] = kept
        self.lines[0]["type"] = "run"
        with self.assertRaises(StateError):
            self.check()


if __name__ == "__main__":
    unittest.main()
