"""Freshwire beside LiveKit's server: the clock in the picture, the way into the room, the table."""

import base64
import hashlib
import hmac
import json
import tempfile
import unittest
from pathlib import Path

from freshwire_lab.livekit.__main__ import COLUMNS, percentile, row
from freshwire_lab.livekit.far import CLOCK_CELLS, clock_cells, encoder
from freshwire_lab.livekit.plan import RENDITIONS, SECRET, Folder, Tools, token


def run(system: str, age: float, width: int) -> dict[str, object]:
    """Return a run in which every picture was this old and wide."""
    part = {"ages": [age] * 10, "widths": [width] * 10}
    rates = {"rate": 25.0, "kbit": 200.0, "buffered": 0.05, "trip": 0.06, "longest": 0.1}
    return {"system": system, "first": 1.0, "beginning": part, "settled": part, **rates}


class Pictures(unittest.TestCase):
    """What is published."""

    def test_the_strip_holds_the_time_and_its_parity(self) -> None:
        for millis in (0, 1, 1_764_434_000_123, (1 << 44) - 1):
            white, black, *bits, parity = (cell // 255 for cell in clock_cells(millis))
            self.assertEqual((white, black, len(bits)), (1, 0, CLOCK_CELLS - 3))
            self.assertEqual(int("".join(map(str, bits)), 2), millis)
            self.assertEqual(sum(bits) % 2, parity)

    def test_both_servers_get_each_rendition_of_one_encoder(self) -> None:
        places = [argument for argument in encoder() if argument.startswith("[f=rtsp")]
        self.assertEqual(len(places), len(RENDITIONS))
        for place, rendition in zip(places, RENDITIONS, strict=True):
            self.assertIn(f"/{rendition.address}|", place)
            self.assertIn(f":{rendition.port}?", place)
        self.assertEqual(encoder().count("libx264"), len(RENDITIONS))


class Room(unittest.TestCase):
    """What the ends need."""

    def test_a_token_is_signed(self) -> None:
        text, signature = token("viewer").rsplit(".", 1)
        expected = hmac.digest(SECRET.encode(), text.encode(), hashlib.sha256)
        self.assertEqual(base64.urlsafe_b64decode(signature + "="), expected)
        claims = json.loads(base64.urlsafe_b64decode(text.split(".")[1] + "=="))
        self.assertEqual((claims["sub"], claims["video"]["roomJoin"]), ("viewer", True))

    def test_missing_programs_are_named(self) -> None:
        here, gone = Path(__file__), Path("/nowhere/server")
        self.assertEqual(Tools(here, gone, here, gone).missing(), [gone, gone])
        self.assertEqual(Tools(here, here, here, here).missing(), [])

    def test_the_first_failure_is_reported(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            folder = Folder(Path(name))
            folder.check()
            folder.fail("first")
            folder.fail("second")
            with self.assertRaisesRegex(SystemExit, "^first$"):
                folder.check()


class Table(unittest.TestCase):
    """The report."""

    def test_a_row_has_the_median_of_the_runs_and_each_mean(self) -> None:
        runs = [run("livekit", age, 320) for age in (0.1, 0.9, 0.2)] + [run("freshwire", 9.0, 640)]
        cells = [cell.strip() for cell in row("livekit", runs).strip("|").split("|")]
        self.assertEqual(len(cells), len(COLUMNS))
        self.assertEqual(cells[1], "0.200 (0.10, 0.90, 0.20)")
        self.assertIn("0, 0, 100 %", cells)

    def test_percentile(self) -> None:
        values = [float(value) for value in range(100, 0, -1)]
        self.assertEqual((percentile(values, 0.5), percentile(values, 0.95), percentile([7.0], 0.95)), (51, 96, 7))


if __name__ == "__main__":
    unittest.main()
