"""Tests of the receive queue: the SimPy model against what research/sim has pinned, and against the article."""

from __future__ import annotations

import math
import os
import unittest
from importlib.util import find_spec
from pathlib import Path

if find_spec("simpy") is None and os.environ.get("CI") != "true":
    message = "the package simpy (python3-simpy3) is not there"
    raise unittest.SkipTest(message)


from freshwire_lab.queue_model import Machine, Setting, Threshold, means

SEED = 20261127
REPETITIONS = 300
ERRORS = 4.0
"""How many standard errors of the difference the two models may be apart."""
ROUNDING = 1e-3
"""Beside them, what the pinned file rounds."""
NAMES = ("mean_length", "time_mean_length", "idle_ticks", "refused", "takes", "pushes", "taken")


def pinned() -> list[tuple[Setting, list[tuple[float, float]]]]:
    """What the Rust model says: settings with mean and standard error of each number."""
    lines = (Path(__file__).parent / "data/queue.txt").read_text().splitlines()
    found: list[tuple[Setting, list[tuple[float, float]]]] = []
    for line in lines:
        if line.startswith("#"):
            continue
        arrival, delay, push, *rest = (float(word) for word in line.split())
        pairs = list(zip(rest[::2], rest[1::2], strict=True))
        found.append((Setting(arrival=arrival, delay=delay, push_packets=int(push)), pairs))
    return found


class QueueTest(unittest.TestCase):
    """Two models of one system."""

    def test_both_models_agree(self) -> None:
        """Within four standard errors of the difference, in all seven numbers of all twelve settings."""
        settings = pinned()
        self.assertEqual(len(settings), 12)
        for setting, theirs in settings:
            ours = means(setting, SEED, REPETITIONS)
            self.assertEqual(len(ours), len(theirs))
            for name, (mean, error), (other, other_error) in zip(NAMES, ours, theirs, strict=True):
                with self.subTest(setting=setting, number=name):
                    tolerance = ERRORS * math.hypot(error, other_error) + ROUNDING
                    self.assertLessEqual(abs(mean - other), tolerance, f"{mean} +- {error}, {other} +- {other_error}")

    def test_the_tolerance_tells_models_apart(self) -> None:
        """A recv() that takes nine packets in 1.3 ticks, not ten in one, is outside."""
        setting, theirs = pinned()[0]
        other = Setting(arrival=setting.arrival, delay=setting.delay, receive_packets=9, receive=1.3)
        ((mean, error), *_) = means(other, SEED, REPETITIONS)
        self.assertGreater(abs(mean - theirs[0][0]), ERRORS * math.hypot(error, theirs[0][1]))

    def test_the_published_table_is_near(self) -> None:
        """Table 2 within 1.5 packets and a standard error."""
        published = {(2.0, 5.0): 37.86, (2.0, 10.0): 49.35, (4.0, 5.0): 6.97, (4.0, 10.0): 23.05}
        for (arrival, delay), length in published.items():
            ((mean, error), *_) = means(Setting(arrival=arrival, delay=delay), SEED, REPETITIONS)
            self.assertLess(abs(mean - length), 1.5 + error)

    def test_a_seed_decides_everything(self) -> None:
        """Twice the same."""
        setting = Setting(push_packets=10)
        self.assertEqual(Machine(setting, 7).run(), Machine(setting, 7).run())
        self.assertNotEqual(Machine(setting, 7).run(), Machine(setting, 8).run())

    def test_the_threshold_is_the_articles(self) -> None:
        """Two thirds, less once a push lasts long."""
        threshold = Threshold(64)
        self.assertEqual(threshold.value(), 128 / 3)
        threshold.arrived(0.0)
        threshold.arrived(2.0)
        threshold.pushed(10.0)
        self.assertEqual(threshold.value(), 128 / 3)
        threshold.pushed(310.0)
        self.assertAlmostEqual(threshold.value(), 64 - 35)


if __name__ == "__main__":
    unittest.main()
