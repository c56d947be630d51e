"""Published numbers: what is condensed, what a table says, and what the check finds."""

import contextlib
import io
import json
import tempfile
import unittest
from pathlib import Path

from freshwire_lab import published, tables

DATA = Path(__file__).parent / "data"
ROOT = Path(__file__).parents[3]


class Condensing(unittest.TestCase):
    """Result files become small."""

    def test_records_are_left_out_and_numbers_stay(self) -> None:
        """A run keeps plan, environment and metrics, and gets its day."""
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "new" / "state.jsonl"
            published.condense([DATA / "state.jsonl"], out, "2026-01-02")
            raw = [json.loads(line) for line in (DATA / "state.jsonl").read_text().splitlines()]
            kept = [json.loads(line) for line in out.read_text().splitlines()]
        self.assertEqual([run["date"] for run in kept], ["2026-01-02"] * len(raw))
        self.assertEqual([run["data"]["metrics"] for run in kept], [run["data"]["metrics"] for run in raw])
        self.assertTrue(all("arrivals" not in run["data"] for run in kept))

    def test_a_file_that_contradicts_its_records_is_refused(self) -> None:
        """A number that the records do not give is not published."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "state.jsonl"
            run = json.loads((DATA / "state.jsonl").read_text().splitlines()[0])
            run["data"]["metrics"]["age_mean_ns"] += 1_000_000
            path.write_text(json.dumps(run) + "\n")
            with self.assertRaisesRegex(published.PublishedError, "age_mean_ns"):
                published.condense([path], Path(folder) / "out.jsonl", "2026-01-02")

    def test_a_state_with_uncommitted_changes_is_refused(self) -> None:
        """Nobody could measure it again."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "bench.jsonl"
            path.write_text('{"type": "machine", "data": {"commit": "bcb3b11f2012-dirty"}}\n')
            with self.assertRaisesRegex(published.PublishedError, "uncommitted changes"):
                published.condense([path], Path(folder) / "out.jsonl", "2026-01-02")


class Checking(unittest.TestCase):
    """Documents say what the results say."""

    def test_the_documents_agree_with_the_results(self) -> None:
        """The repository's own."""
        self.assertEqual(list(published.problems(ROOT)), [])

    def test_a_changed_number_is_found(self) -> None:
        """In a table, in a sentence, and in a row that nothing computes."""
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            (root / "research").symlink_to(ROOT / "research")
            (root / "docs").mkdir()
            (root / "docs" / "push.md").write_text((ROOT / "docs" / "push.md").read_text())
            document = (ROOT / published.BENCHMARKS).read_text()
            readme = (ROOT / "README.md").read_text()
            row = next(line for line in document.splitlines() if line.startswith("| 4 | Freshwire on TCP"))
            wrong = row.replace("0.", "1.", 1)
            for text, of_readme, expected in (
                (document, readme, []),
                (document.replace(row, wrong), readme, ["table demo"]),
                (document + "\n| 5 ms | made up |\n", readme, ["no result file stands behind"]),
                (document, readme + "\n| made up | 5 ms | 0.68 [0.61 .. 0.71] |\n", ["README.md: no result file"]),
                (document, readme + "\n| a limit | of 5 ms | `x` |\n", []),
                (document, readme.replace(" s old**", "0 s old**"), ["README.md: the results say"]),
                (document.replace("<!-- results: sim -->", ""), readme, ["table sim is missing"]),
                (document + "\n<!-- results: none -->\n<!-- end -->\n", readme, ["stands behind table none"]),
            ):
                (root / published.BENCHMARKS).write_text(text)
                (root / "README.md").write_text(of_readme)
                found = list(published.problems(root))
                for part in expected:
                    self.assertTrue(any(part in problem for problem in found), (part, found))
                self.assertEqual(bool(found), bool(expected), found)
            with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()):
                self.assertEqual(published.main(["check", "--root", folder]), 1)
                self.assertIn("differences", out.getvalue())
                published.write(root)

    def test_a_missing_result_file_cannot_be_overlooked(self) -> None:
        """It is an error, not an empty table."""
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()) as err:
            self.assertEqual(published.main(["check", "--root", folder]), 2)
            self.assertIn("no result file", err.getvalue())


class Tables(unittest.TestCase):
    """What tables count."""

    def test_untrusted_runs_are_set_aside_and_said(self) -> None:
        """They change no number, and the table says how many there were."""
        environment = {"cpu": "A", "cores": 2, "kernel": "6.12-x", "commit": "abc", "command": "freshwire-lab"}

        def run(share: float, trustworthy: bool) -> tables.Json:
            link = {"rate_bps": 262144, "loss": 0.01, "delay_ms": 50.0}
            plan = {"scheme": "a1", "link": link}
            data = {"plan": plan, "environment": environment, "metrics": {"share_of_ideal": share}}
            return {"type": "run", "date": "2026-01-02", "data": {**data, "trust": {"trustworthy": trustworthy}}}

        lines = tables.a1([run(0.5, True), run(0.7, True), run(0.1, False)])
        self.assertIn("Set aside, as the machine was too busy: 1 of 3 runs.", lines)
        none = " | ".join(["no run counts"] * 5)
        self.assertEqual(lines[-1], f"| 256 Kibit/s, 1 %, 50 ms | {none} | 60 (50-70) |")

    def test_the_rule_of_the_thesis_is_compared_with_plain_tcp(self) -> None:
        """The medians, their difference, and the windows that were complete."""

        def run(scheme: str, rate: float, base: int) -> tables.Json:
            plan = {"scheme": scheme, "link": {"rate_bps": 524288, "loss": 0.05, "delay_ms": 0.0}}
            metrics = {"receive_rate_kibit": rate, "received_layer_bytes": [base * 16384]}
            return {"type": "run", "data": {"plan": plan, "metrics": metrics}}

        lines = tables.thesis([run("tcp", 400.0, 20), run("thesis", 408.0, 60), run("thesis", 412.0, 59)])
        self.assertEqual(
            lines[-1],
            "| 512 Kibit/s, 5 %, 0 ms | 400.0 | 410.0 | 2.5 % more | 0.31 % less | 60 (59-60) of 60 | 1 and 2 |",
        )
        with self.assertRaisesRegex(tables.TableError, "thesis, 512"):
            tables.thesis([run("tcp", 400.0, 20)])

    def test_receivers_are_rows_and_their_numbers_columns(self) -> None:
        """The median and the range of each, ages in milliseconds."""

        def number(bench: str, name: str, unit: str, samples: list[float]) -> tables.Json:
            data = {"bench": bench, "name": name, "unit": unit, "samples": samples}
            return {"type": "number", "date": "2026-01-02", "data": data}

        names = {"cpu": "EPYC", "cores": 2, "kernel": "6.18.1-x", "commit": "abc", "load": 3.4, "command": "run"}
        lines = tables.receive(
            [
                {"type": "machine", "date": "2026-01-02", "data": names},
                number("receive, 9/s", "recv: lost", "percent", [30.0, 40.0, 31.0]),
                number("receive, 9/s", "recv: taking one", "nanoseconds", [1000.4]),
                number("receive, overload", "recv: age, most", "nanoseconds", [2e9]),
            ]
        )
        self.assertEqual(lines[0], "2026-01-02; EPYC, 2 cores, Linux 6.18.1; commit abc.")
        self.assertIn("| recv | 31.000 (30.000-40.000) % | 1000 ns |", lines)
        self.assertEqual(lines[-1], "| recv | 2000.0 ms |")

    def test_frames_are_counted_on_both_links(self) -> None:
        """A dip has a recovery, which one run without it spoils."""

        def run(scheme: str, steps: int, back: int | None) -> tables.Json:
            plan = {"scheme": scheme, "link": {"steps": [0] * steps}}
            recovery = {"state": "never"} if back is None else {"state": "after", "after_ns": back}
            metrics = {"on_time_frames": 90, "oracle_frames": 100, "recovery": recovery}
            return {"type": "run", "data": {"plan": plan, "metrics": metrics}}

        runs = [run(scheme, steps, 20_000_000) for scheme in tables.FRAMES for steps in (0, 2)]
        lines = tables.frames([*runs, run("reserve", 2, None)])
        self.assertEqual(lines[-1], "| dip from 6 to 1 Mbit/s | Freshwire | 90 | 100 | 90 % | 20 ms | 1 |")
        self.assertEqual(lines[-3], "| dip from 6 to 1 Mbit/s | small reserve alone | 90 | 100 | 90 % | never | 2 |")
        self.assertEqual(lines[-8], "| 2 Mbit/s | plain TCP | 90 | 100 | 90 % |  | 1 |")


if __name__ == "__main__":
    unittest.main()
