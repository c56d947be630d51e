"""Tests of the check of what is on the screen, on a file that the program itself wrote."""

from __future__ import annotations

import copy
import json
import tempfile
import unittest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from freshwire_lab.check import check_file

if TYPE_CHECKING:
    from collections.abc import Callable

RUNS = Path(__file__).parent / "data" / "screen.jsonl"


def lines() -> list[dict[str, Any]]:
    """Parse the reference file without the code under test."""
    return [json.loads(line) for line in RUNS.read_text().splitlines()]


class ScreenTest(unittest.TestCase):
    """The check agrees with a true file and catches a false one."""

    def problems(self, *changed: dict[str, Any]) -> str:
        """Write the lines to a file and check it."""
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "screen.jsonl"
            path.write_text("".join(json.dumps(line) + "\n" for line in changed))
            return "\n".join(check_file(path)[1])

    def test_the_program_and_the_lab_agree(self) -> None:
        """Every number of the reference file follows from its pictures here too."""
        self.assertEqual(check_file(RUNS), (3, []))

    def test_a_number_that_does_not_follow_is_found(self) -> None:
        """Any of them."""
        for place, line in enumerate(lines()):
            screen = line["data"]["metrics"]["screen"]
            self.assertEqual(len(screen), 8)
            for name in screen:
                with self.subTest(run=place, number=name):
                    kept, screen[name] = screen[name], screen[name] * 1.01 + 1
                    self.assertIn(name, self.problems(line))
                    screen[name] = kept

    def test_contradictions_are_found(self) -> None:
        """Things that cannot be, whatever was measured."""

        def first(line: Any) -> Any:  # noqa: ANN401
            return next(p for p in line["data"]["pictures"] if p.get("arrived_ns") is not None)

        changes: tuple[tuple[Callable[[Any], object], str], ...] = (
            (lambda line: first(line).update(refs=[10**6]), "refers to one that is not before it"),
            (lambda line: first(line).update(arrived_ns=1), "arrived before it was offered"),
            (lambda line: first(line).update(captured_ns=10**12), "offered before it was captured"),
            (lambda line: line["data"].update(received_bytes=1), "received_bytes: 1"),
            (lambda line: line["data"]["metrics"]["oracle"].update(cost=9.0), "less than the oracle's"),
        )
        for change, message in changes:
            with self.subTest(message):
                line = copy.deepcopy(lines()[0])
                change(line)
                self.assertIn(message, self.problems(line))


if __name__ == "__main__":
    unittest.main()
