"""Time-critical data, as fresh as the path allows.

A `Sender` puts records into rings in shared memory. An `Engine` takes the next record only when TCP can put it on the wire,
and asks the sink's policy which one that is. Until then the application may drop, modify or replace the record. The receiver
is any TCP program.

    import socket
    import freshwire
    from freshwire import choice

    with freshwire.Engine() as engine:
        sender = freshwire.Sender(engine)
        sink = sender.add_sink(socket.create_connection(("viewer", 5000)), choice.deadline())
        sink.push(b"position 4711", expires_in=0.3)
        sink.close()
"""

import sys as _sys

from ._interpreter import check as _check

_check()

from . import _native
from ._native import (
    Abandoned,
    CarrierError,
    Cause,
    Close,
    Closed,
    ConnectError,
    Ended,
    Engine,
    Fate,
    Fates,
    FreshwireError,
    Full,
    InvalidStream,
    Link,
    LinkCounters,
    LinkError,
    LinkNotPermitted,
    LinkStats,
    NetworkQos,
    NoFreeRing,
    NotChanged,
    Outcome,
    PolicyError,
    Reason,
    Receiver,
    Record,
    Reservation,
    Ring,
    Sender,
    Sink,
    SinkEvents,
    Stats,
    TooLarge,
    TooLate,
    __version__,
    a1,
    choice,
    now,
)

from . import _aio, asgi
from ._websocket import WebSocket

_aio.install(_native)

# So that `import freshwire.choice` and pickled names work.
_sys.modules[__name__ + ".choice"] = choice
_sys.modules[__name__ + ".a1"] = a1

__all__ = [
    "Abandoned",
    "CarrierError",
    "Cause",
    "Close",
    "Closed",
    "ConnectError",
    "Ended",
    "Engine",
    "Fate",
    "Fates",
    "FreshwireError",
    "Full",
    "InvalidStream",
    "Link",
    "LinkCounters",
    "LinkError",
    "LinkNotPermitted",
    "LinkStats",
    "NetworkQos",
    "NoFreeRing",
    "NotChanged",
    "Outcome",
    "PolicyError",
    "Reason",
    "Receiver",
    "Record",
    "Reservation",
    "Ring",
    "Sender",
    "Sink",
    "SinkEvents",
    "Stats",
    "TooLarge",
    "TooLate",
    "WebSocket",
    "__version__",
    "a1",
    "asgi",
    "choice",
    "now",
]
