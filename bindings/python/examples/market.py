"""Market data by key: a subscriber that cannot keep up skips prices, and never sees an old one after a new one.

The producer makes prices as fast as it can; the subscriber reads with a pause. Both ends run here, over loopback. It prints how
many prices were made, sent and superseded, and how old a price was when it was read.
"""

import argparse
import socket
import statistics
import struct
import threading
import time

import freshwire
from freshwire import choice

PRICE = struct.Struct("!IQQ")
"""Symbol, price, time of the price."""


def subscribe(stream, pause, seen):
    """Read prices slowly."""
    for record in freshwire.Receiver(stream):
        symbol, price, made = PRICE.unpack(record.payload)
        seen.append((symbol, price, record.arrived - made))
        time.sleep(pause)


def main():
    """Trade for a while."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--symbols", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--pause", type=float, default=0.002, help="seconds that the subscriber takes for a price")
    options = parser.parse_args()
    with socket.create_server(("127.0.0.1", 0)) as server, freshwire.Engine() as engine:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        near = socket.create_connection(server.getsockname())
        far, _ = server.accept()
        seen = []
        reader = threading.Thread(target=subscribe, args=(far, options.pause, seen))
        reader.start()
        ring = freshwire.Ring.for_clients(clients=1, keys=options.symbols, bytes=PRICE.size)
        sink = freshwire.Sender(engine, ring).add_sink(near, choice.latest(), framing="chunked", keys=options.symbols)
        made, end = 0, time.monotonic() + options.seconds
        while time.monotonic() < end:
            for symbol in range(1, options.symbols + 1):
                made += 1
                sink.replace(PRICE.pack(symbol, made, freshwire.now()), key=symbol)
            time.sleep(0.0005)
        ended = sink.close(timeout=60.0)
        near.close()
        reader.join()
        newest = {}
        for symbol, price, _ in seen:
            assert price > newest.get(symbol, 0), "an old price after a new one"
            newest[symbol] = price
        ages = [age / 1e6 for _, _, age in seen]
        print(f"made {made}, read {len(seen)}, {ended}, median age {statistics.median(ages):.1f} ms")


if __name__ == "__main__":
    main()
