"""The five publications: what is computed of a result, and what the check of the published results finds."""

import json
import shutil
import tempfile
import unittest
from pathlib import Path

from freshwire_lab import evidence

ROOT = Path(__file__).parents[3]


def line(scheme: str, rate: float, *, trusted: bool = True) -> dict[str, object]:
    """Make a line of a result file."""
    return {"data": {"plan": {"scheme": scheme}, "trust": {"trustworthy": trusted}, "rate": rate, "layers": [rate, 1]}}


class Computing(unittest.TestCase):
    """Rows and claims follow from lines."""

    def test_busy_lines_are_set_aside_and_others_have_a_median(self) -> None:
        """If all are busy, all count."""
        row = {"name": "r", "where": {"plan.scheme": "tcp"}, "y": "rate", "scale": 2}
        lines = [line("tcp", 1), line("tcp", 4), line("tcp", 90, trusted=False), line("other", 7)]
        self.assertEqual(evidence.points_of(row, lines), [(1.0, 5.0, 2, 8)])
        self.assertEqual(evidence.points_of(row, lines[2:3]), [(1.0, 180.0, 180, 180)])

    def test_lists_names_and_elements_become_curves(self) -> None:
        """The axis is a place, a number in a name, or a field."""
        self.assertEqual(evidence.points_of({"y": "layers"}, [line("tcp", 3)]), [(1.0, 3, 3, 3), (2.0, 1, 1, 1)])
        named = [{"name": "A, 64 B", "median": 3}, {"name": "A, 16384 B", "median": 6}]
        row = {"where": {"name": "A, {x} B"}, "x": [64, 16384], "y": "median"}
        self.assertEqual([point[:2] for point in evidence.points_of(row, named)], [(64.0, 3), (16384.0, 6)])
        cells = [{"data": {"cells": [{"at": 2, "n": 8}, {"at": 1, "n": 4}]}}]
        row = {"each": "cells", "x": "at", "y": "n"}
        self.assertEqual([point[:2] for point in evidence.points_of(row, cells)], [(1.0, 4), (2.0, 8)])

    def test_claims_hold_or_do_not_or_cannot_be_judged(self) -> None:
        """As the laboratory judges them."""
        rows = {"high": [(x, y, y, y) for x, y in ((1.0, 3.0), (2.0, 5.0))], "low": [(1.0, 1.0, 1.0, 1.0)], "none": []}
        for claim, wanted in (
            ({"above": "low"}, True),
            ({"above": "low", "times": 4}, False),
            ({"above": "none"}, None),
            ({"order": "rises"}, True),
            ({"order": "falls"}, False),
            ({"order": "flat", "slack": 0.5}, True),
            ({"between": [4, 9]}, False),
        ):
            self.assertEqual(evidence.holds({"row": "high", **claim}, rows), wanted, claim)


class Published(unittest.TestCase):
    """The repository's own results."""

    def test_every_published_row_follows_from_its_result(self) -> None:
        """Rows, claims, commands and the report."""
        self.assertEqual(list(evidence.problems(ROOT)), [])

    def test_a_changed_number_command_and_report_are_found(self) -> None:
        """Each by its name."""
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            for path in (evidence.CATALOGUE, evidence.PUBLISHED):
                shutil.copytree(ROOT / path, root / path)
            result = root / evidence.PUBLISHED / "long" / "queue.jsonl"
            result.write_text(result.read_text().replace('"nic_packets": 300', '"nic_packets": 301'))
            origins = root / evidence.PUBLISHED / "long" / "origins.json"
            changed = json.loads(origins.read_text())
            changed["queue"]["commands"] = ["another"]
            changed["queue"]["dirty"] = True
            origins.write_text(json.dumps(changed))
            found = "\n".join(evidence.problems(root))
        for part in ("choi-2007-table-1, NIC queue", "another command", "uncommitted changes", "report.md"):
            self.assertIn(part, found)

    def test_results_with_uncommitted_changes_are_not_published(self) -> None:
        """Nobody could measure them again."""
        with tempfile.TemporaryDirectory() as folder:
            run = Path(folder) / "queue"
            run.mkdir()
            (run / "origin.json").write_text(json.dumps({"run": "queue", "dirty": True, "commands": []}))
            shutil.copytree(ROOT / evidence.CATALOGUE, Path(folder) / evidence.CATALOGUE)
            with self.assertRaisesRegex(evidence.EvidenceError, "uncommitted changes"):
                evidence.publish(Path(folder), Path(folder), "short", "2026-01-02")


if __name__ == "__main__":
    unittest.main()
