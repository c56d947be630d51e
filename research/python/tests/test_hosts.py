"""Two machines: what follows from their times, and what the report says."""

import math
import unittest

from freshwire_lab.hosts import measure, report
from freshwire_lab.hosts.__main__ import SCHEMES, commands, moved

MS = 1_000_000


class Clocks(unittest.TestCase):
    """The difference of two clocks."""

    def test_the_error_is_within_its_bound_however_unequal_the_directions_are(self) -> None:
        for true in (0, 5 * 10**12, -(10**9)):
            for there, back in ((MS, MS), (100 * MS, MS), (MS, 100 * MS), (0, 1)):
                asked = 7_000_000_001
                times = [(asked, asked + there + true, asked + there + back), (0, true + 10**9, 2 * 10**9)]
                found = measure.offset(times)
                self.assertLessEqual(abs(found.ns - true), found.error_ns)
                self.assertLessEqual(found.error_ns, (there + back + 1) // 2)

    def test_clocks_drift_steadily_between_two_looks(self) -> None:
        before, after = measure.Offset(0, 1000, 0), measure.Offset(1000, 2000, 0)
        self.assertEqual([measure.between(before, after, at) for at in (0, 500, 1000)], [1000, 1500, 2000])
        self.assertEqual(measure.between(before, before, 7), 1000)

    def test_times_move_there_and_back(self) -> None:
        same = measure.Offset(10**9, -(10**12), 0)
        for at in (0, 5 * 10**9):
            self.assertEqual(moved((same, same), moved((same, same), at, 0), 1), at)


class Ages(unittest.TestCase):
    """The age of the newest value of each key."""

    def test_an_age_grows_until_a_newer_value_comes(self) -> None:
        # A value each 100 ms, each 20 ms on its way: from 20 to 120 ms old.
        arrivals = [(0, at * 100 * MS, at * 100 * MS + 20 * MS) for at in range(-1, 101)]
        found = measure.ages(arrivals, 1, 0, 10**10)
        self.assertAlmostEqual(found.median, 0.065, delta=0.006)
        self.assertAlmostEqual(found.worst, 0.115, delta=0.006)

    def test_an_older_value_does_not_replace_a_newer_one(self) -> None:
        fresh = (0, 900 * MS, 950 * MS)
        late = (0, 0, 960 * MS)
        self.assertEqual(
            measure.ages([fresh, late], 1, 950 * MS, 2000 * MS), measure.ages([fresh], 1, 950 * MS, 2000 * MS)
        )

    def test_a_key_that_never_comes_is_infinitely_old(self) -> None:
        arrivals = [(0, at * MS, at * MS) for at in range(1000)]
        found = measure.ages(arrivals, 2, 0, 1000 * MS)
        self.assertTrue(math.isfinite(found.median) and math.isinf(found.high) and math.isinf(found.worst))

    def test_throughput_leaves_the_start_out(self) -> None:
        # Nothing for a fifth, then 1000 bytes each 10 ms.
        pieces = [(at * 10 * MS, (at - 20) * 1000) for at in range(20, 200)]
        self.assertAlmostEqual(measure.throughput(pieces, 0, 1000 * MS), 800_000, delta=20_000)


class Sources(unittest.TestCase):
    """What is offered."""

    def test_a_source_has_its_rate_from_slow_to_fast(self) -> None:
        for rate in (1e5, 1e6, 1e7, 1e8, 4e8):
            source = measure.source(rate)
            self.assertAlmostEqual(source.rate_bps / rate, 1, delta=0.01)
            self.assertTrue(1 <= source.keys <= 50)
            # Each key has ten values a second where it can.
            self.assertTrue(source.keys == 1 or 1e9 / source.interval_ns / source.keys >= 9.9)


class Commands(unittest.TestCase):
    """What runs at the two ends."""

    def test_each_scheme_has_its_commands(self) -> None:
        class End:
            peer_address = "fd77::2"
            key = "KEY OF THE RECEIVER"

        for scheme in SCHEMES:
            send, receive = commands(scheme, End(), End(), 7411, values=True)  # type: ignore[arg-type]
            self.assertTrue("7411" in receive or ":7411" in receive)
            if scheme != SCHEMES[0]:
                self.assertIn("[fd77::2]:7411", send)
            self.assertEqual("KEY OF THE RECEIVER" in send, scheme == "Freshwire on A1")


class Reports(unittest.TestCase):
    """The text of the results."""

    def test_a_spread_says_what_never_came(self) -> None:
        self.assertEqual(report.spread([0.1], report.seconds), "100.0 ms")
        self.assertEqual(report.spread([1.0, 3.0, 2.0], report.seconds), "2.00 s (1.00 s to 3.00 s)")
        self.assertEqual(report.spread([None, 3.0], report.seconds), "never in 1 of 2 runs")
        self.assertEqual(report.spread([None], report.seconds), "never")


if __name__ == "__main__":
    unittest.main()
