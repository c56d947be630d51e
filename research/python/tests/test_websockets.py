"""The comparison of WebSocket servers: how frames are read, and what is made of ages."""

import unittest

from freshwire_lab.websockets.__main__ import figures
from freshwire_lab.websockets.client import next_frame


class Frames(unittest.TestCase):
    """Reading a server's frames."""

    def test_every_length_is_read_and_half_a_frame_is_not(self) -> None:
        heads = {125: b"\x81\x7d", 126: b"\x81\x7e\x00\x7e", 65536: b"\x81\x7f" + (65536).to_bytes(8, "big")}
        for size, head in heads.items():
            frame = head + bytes(size)
            self.assertEqual(next_frame(b"xx" + frame, 2), (1, 2 + len(head), 2 + len(frame)))
            for end in (0, 1, len(head), len(frame) - 1):
                self.assertIsNone(next_frame(frame[:end], 0))


class Figures(unittest.TestCase):
    """What is made of ages."""

    def test_ages_are_milliseconds_and_the_end_is_the_last_two_seconds(self) -> None:
        ages = [(at * 1_000_000_000, at * 1_000_000) for at in range(1, 11)]
        result = {"fast": {"clients": 2, "lost": 1, "begin": 0, "end": 10_000_000_000, "ages": [ages, []]}}
        found = figures(result, "fast", 10)
        self.assertEqual((found["p50"], found["max"], found["end"]), (6, 10, 9))
        self.assertEqual((found["rate"], found["lost"], found["silent"]), (0.5, 1, 1))


if __name__ == "__main__":
    unittest.main()
