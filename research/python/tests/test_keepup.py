"""The readers that keep up: how two runs are compared."""

import unittest

from freshwire_lab.keepup.__main__ import CELLS, LINKS, judge


def run(count: int, age_ms: float) -> list[tuple[str, int]]:
    """Return what a reader got: this number of values, each this old."""
    return [("k0", int(age_ms * 1e6))] * count


class Judgement(unittest.TestCase):
    """What counts as good."""

    def test_a_reader_gets_as_much_as_beside_it_and_is_at_most_twice_as_late(self) -> None:
        plain = run(1000, 100)
        for ours, good in ((run(990, 229), True), (run(989, 1), False), (run(1000, 231), False), ([], False)):
            self.assertEqual(judge(ours, plain)[0], good)

    def test_the_cells_sweep_sizes_rates_and_keys(self) -> None:
        keys, rates, sizes = zip(*CELLS, strict=True)
        self.assertTrue(
            max(keys) >= 500 * min(keys) and max(rates) >= 40 * min(rates) and max(sizes) >= 1600 * min(sizes)
        )
        for rate, cells in LINKS.items():
            capacity = int(rate.removesuffix("Mbit")) * 1e6
            self.assertTrue(all(count * hz * (size + 120) * 8 < 0.9 * capacity for count, hz, size in cells), rate)


if __name__ == "__main__":
    unittest.main()
