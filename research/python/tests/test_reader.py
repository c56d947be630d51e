"""Tests of the reader of the layered stream."""

from __future__ import annotations

import contextlib
import io
import json
import re
import socket
import subprocess
import sys
import unittest
from pathlib import Path

from freshwire_lab.reader import HEADER, Account, StreamError, main, payload, read_stream

LAB = Path(__file__).parent.parent


def record(seq: int, *, size: int = 100) -> bytes:
    """Make a record as the layered source does, eight layers to a window."""
    header = HEADER.pack(b"FWLR", 1, seq % 8, HEADER.size, seq // 8, size, seq, 5)
    return header + payload(seq, size - HEADER.size)


def account_of(stream: bytes) -> Account:
    """Read a stream that is in memory."""
    account = Account()
    read_stream(io.BytesIO(stream).read, account)
    return account


class ReaderTest(unittest.TestCase):
    """The reader accepts whole records alone."""

    def test_the_payload_is_that_of_the_layered_source(self) -> None:
        """The numbers are those that `freshwire-media` writes."""
        self.assertEqual(payload(0, 12).hex(), PAYLOAD_0)
        self.assertEqual(payload(1, 12).hex(), PAYLOAD_1)
        self.assertEqual(payload(2**64 - 1, 8).hex(), PAYLOAD_LAST)

    def test_dropped_records_are_counted_and_not_missed(self) -> None:
        """A gap in the sequence is a choice of the sender."""
        account = account_of(record(0) + record(3, size=32) + record(9))
        expected = {
            "records": 3,
            "bytes": 232,
            "windows": 2,
            "skipped": 7,
            "layer_records": [1, 1, 0, 1],
            "layer_bytes": [100, 100, 0, 32],
        }
        self.assertEqual(account.as_json(), expected)

    def test_an_empty_stream_is_whole(self) -> None:
        """Nothing sent is nothing wrong."""
        self.assertEqual(account_of(b"").records, 0)

    def test_torn_or_wrong_streams_are_refused(self) -> None:
        """Each message says where."""
        whole = record(4)
        wrong = bytearray(whole)
        wrong[60] ^= 1
        for stream, message in (
            (whole[:-1], "record 4 is torn: 67 of 68"),
            (whole[:20], "ends inside a header"),
            (whole + whole[1:], "byte 100: magic is b'WLR"),
            (whole + whole, "record 4 comes after record 4"),
            (bytes(wrong), "record 4: byte 28 of the payload"),
            (whole[:4] + b"\x02" + whole[5:], "version is 2"),
            (whole[:7] + b"\x28" + whole[8:], "header size is 40"),
            (whole[:12] + b"\xff" * 4 + whole[16:], "a record of 4294967295 bytes cannot be"),
            (whole[:12] + b"\0\0\0\x1f" + whole[16:], "a record of 31 bytes cannot be"),
        ):
            with self.subTest(message), self.assertRaisesRegex(StreamError, re.escape(message)):
                account_of(stream)

    def test_the_command_reads_from_a_socket(self) -> None:
        """A sender connects, sends, closes; the account comes as JSON."""
        for stream, code in ((record(0) + record(1), 0), (record(0) + record(1)[:50], 1)):
            with self.subTest(code):
                command = [sys.executable, "-m", "freshwire_lab.reader", "--listen", "0", "--host", "127.0.0.1"]
                with subprocess.Popen(
                    [*command, "--timeout", "10"], cwd=LAB, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
                ) as process:
                    assert process.stderr is not None
                    port = int(process.stderr.readline().rsplit(maxsplit=1)[-1])
                    with socket.create_connection(("127.0.0.1", port), timeout=10) as sender:
                        sender.sendall(stream)
                    output, _ = process.communicate(timeout=10)
                self.assertEqual(process.returncode, code)
                counted = json.loads(output)
                self.assertEqual(counted["records"], 2 - code)
                self.assertEqual(counted["problem"] is None, code == 0)

    def test_no_sender_is_said(self) -> None:
        """A refused connection leaves with 2."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        errors = io.StringIO()
        with contextlib.redirect_stderr(errors):
            self.assertEqual(main(["--connect", f"127.0.0.1:{port}"]), 2)
        self.assertIn("refused", errors.getvalue())


PAYLOAD_0 = "0000000000000000e220a839"
PAYLOAD_1 = "4bfda257765acd3f2cd43b01"
PAYLOAD_LAST = "dd1b2e14e2f121c5"
