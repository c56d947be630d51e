import socket as _socket
from asyncio import StreamWriter, Transport
from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator, Mapping
from enum import Enum
from types import TracebackType
from typing import Literal, Protocol, TypedDict, final

from typing_extensions import Buffer, Self, Unpack

from . import a1 as a1
from . import asgi as asgi
from . import choice as choice

__version__: str

def now() -> int: ...

class _HasFileno(Protocol):
    def fileno(self) -> int: ...

class FreshwireError(Exception): ...
class Full(FreshwireError): ...
class TooLarge(FreshwireError): ...
class Closed(FreshwireError): ...
class TooLate(FreshwireError): ...
class NotChanged(FreshwireError): ...
class NoFreeRing(FreshwireError): ...
class CarrierError(FreshwireError): ...
class InvalidStream(FreshwireError): ...
class ConnectError(FreshwireError): ...
class PolicyError(FreshwireError): ...
class LinkError(FreshwireError): ...
class LinkNotPermitted(LinkError): ...

class Reason(Enum):
    Expired = 1
    PredictedLate = 2
    WindowEnd = 3
    LayerShed = 4
    Superseded = 5
    ReferenceLost = 6
    Application = 7
    Abandoned = 8
    Closed = 9
    SenderLost = 10
    HolderLost = 11
    Invalid = 12
    ConnectionLost = 13
    Other = 255

class Outcome(Enum):
    Acked = ...
    Sent = ...
    Dropped = ...
    Refused = ...

class Close(Enum):
    Drain = ...
    FinishRecord = ...
    Abort = ...

class Cause(Enum):
    Io = ...
    A1 = ...
    PeerClosed = ...
    OutOfTime = ...
    Lingered = ...
    Stalled = ...
    NotReading = ...
    CannotInterject = ...
    Stopped = ...
    Other = ...

class Ended:
    @final
    class Closed(Ended):
        def __init__(self) -> None: ...

    @final
    class Broken(Ended):
        cause: Cause
        reason: str
        def __init__(self, cause: Cause, reason: str) -> None: ...

@final
class Engine:
    def __new__(cls) -> Engine: ...
    @property
    def is_running(self) -> bool: ...
    def close(self) -> None: ...
    def __enter__(self) -> Engine: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

@final
class Ring:
    rings: int
    slots: int
    block_bytes: int
    blocks: int
    def __new__(cls, rings: int = 1, slots: int = 1024, block_bytes: int = 1448, blocks: int = 1024) -> Ring: ...
    @staticmethod
    def for_clients(clients: int, keys: int, bytes: int) -> Ring: ...

@final
class NetworkQos:
    def __new__(
        cls,
        *,
        dscp: str | int | None = None,
        priority: int | None = None,
        max_rate: int | None = None,
        departure_times: bool = False,
    ) -> NetworkQos: ...
    @property
    def dscp(self) -> int | None: ...
    @property
    def priority(self) -> int | None: ...
    @property
    def max_rate(self) -> int | None: ...
    @property
    def departure_times(self) -> bool: ...

@final
class Sender:
    def __new__(cls, engine: Engine | None = None, ring: Ring | None = None) -> Sender: ...
    def add_sink(
        self,
        socket: _HasFileno,
        policy: choice.Policy,
        *,
        framing: Literal[
            "raw", "length-prefixed", "chunked", "websocket", "websocket-binary", "event-stream"
        ] = "raw",
        carrier: Literal["tcp", "auto", "kernel"] = "tcp",
        reserve: int = ...,
        queue_target: float | None = 0.05,
        max_unread: int | None = ...,
        keys: int = ...,
        congestion: str = ...,
        min_rto: float = ...,
        max_rto: float = ...,
        linger: float = 30.0,
        stall_timeout: float | None = None,
        ack_fates: bool = True,
        departures: bool = False,
        network: NetworkQos = ...,
        kernel_horizon: Literal[0, 1] = 1,
        kernel_zero_copy: bool = False,
        preface: bytes = b"",
    ) -> Sink: ...
    def add_a1_sink(
        self, connection: a1.Connection, policy: choice.Policy, *, linger: float = 30.0, departures: bool = False
    ) -> Sink: ...
    def add_a1_group(self, group: a1.Group, policy: choice.Policy, *, linger: float = 30.0) -> Sink: ...
    def push_to_all(
        self,
        sinks: list[Sink],
        payload: Buffer,
        *,
        seq: int | None = None,
        key: int = 0,
        layer: int = 0,
        group: int = 0,
        refs: tuple[int, int] = (0, 0),
        generated: int | None = None,
        deadline: int | None = None,
        expires_in: float | None = None,
    ) -> tuple[int, list[tuple[Sink, FreshwireError]]]: ...
    def reserve(self, sinks: list[Sink], size: int) -> Reservation: ...
    def commit_to_all(
        self,
        sinks: list[Sink],
        reservation: Reservation,
        size: int | None = None,
        *,
        seq: int | None = None,
        key: int = 0,
        layer: int = 0,
        group: int = 0,
        refs: tuple[int, int] = (0, 0),
        generated: int | None = None,
        deadline: int | None = None,
        expires_in: float | None = None,
    ) -> tuple[int, list[tuple[Sink, FreshwireError]]]: ...
    def replace_to_all(
        self,
        sinks: list[Sink],
        payload: Buffer,
        *,
        key: int,
        seq: int | None = None,
        layer: int = 0,
        group: int = 0,
        refs: tuple[int, int] = (0, 0),
        generated: int | None = None,
        deadline: int | None = None,
        expires_in: float | None = None,
    ) -> tuple[int, list[tuple[Sink, FreshwireError]]]: ...

@final
class Sink:
    def push(
        self,
        payload: Buffer,
        *,
        seq: int | None = None,
        key: int = 0,
        layer: int = 0,
        group: int = 0,
        refs: tuple[int, int] = (0, 0),
        generated: int | None = None,
        deadline: int | None = None,
        expires_in: float | None = None,
    ) -> int: ...
    def replace(
        self,
        payload: Buffer,
        *,
        key: int,
        seq: int | None = None,
        layer: int = 0,
        group: int = 0,
        refs: tuple[int, int] = (0, 0),
        generated: int | None = None,
        deadline: int | None = None,
        expires_in: float | None = None,
    ) -> int: ...
    def reserve(self, size: int) -> Reservation: ...
    def commit(
        self,
        reservation: Reservation,
        size: int | None = None,
        *,
        seq: int | None = None,
        key: int = 0,
        layer: int = 0,
        group: int = 0,
        refs: tuple[int, int] = (0, 0),
        generated: int | None = None,
        deadline: int | None = None,
        expires_in: float | None = None,
    ) -> int: ...
    def drop(self, seq: int) -> bool: ...
    def modify(
        self,
        seq: int,
        payload: Buffer | None = None,
        *,
        offset: int = 0,
        length: int | None = None,
        layer: int | None = None,
        deadline: int | None = None,
    ) -> None: ...
    def has_room(self, size: int = 1) -> bool: ...
    def writable(self, size: int = 1) -> Awaitable[None]: ...
    def events(self) -> SinkEvents: ...
    def fates(self) -> Fates: ...
    @property
    def fates_lost(self) -> int: ...
    def stats(self) -> Stats: ...
    @property
    def ended(self) -> Ended | None: ...
    @property
    def fallback(self) -> str | None: ...
    def interject(self, data: bytes) -> None: ...
    def close(self, mode: Close = Close.Drain, timeout: float = 30.0) -> Ended: ...
    def __enter__(self) -> Sink: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

# Those of `Sender.add_sink`, but for the framing.
class _SinkOptions(TypedDict, total=False):
    carrier: Literal["tcp", "auto", "kernel"]
    reserve: int
    queue_target: float | None
    max_unread: int | None
    keys: int
    congestion: str
    min_rto: float
    max_rto: float
    linger: float
    stall_timeout: float | None
    ack_fates: bool
    departures: bool
    network: NetworkQos
    kernel_horizon: Literal[0, 1]
    kernel_zero_copy: bool
    preface: bytes

class WebSocket:
    @property
    def sink(self) -> Sink: ...
    def __init__(
        self,
        sender: Sender,
        socket: _HasFileno | Transport | StreamWriter,
        policy: choice.Policy,
        *,
        leftover: bytes = b"",
        binary: bool = False,
        max_message: int = 65536,
        keepalive: float | None = 15.0,
        keepalive_timeout: float = 30.0,
        **options: Unpack[_SinkOptions],
    ) -> None: ...
    @classmethod
    def accept(
        cls,
        sender: Sender,
        transport: _HasFileno | Transport | StreamWriter,
        headers: Mapping[str, str] | Iterable[tuple[str, str]] | Iterable[tuple[bytes, bytes]],
        policy: choice.Policy,
        *,
        subprotocol: str | None = None,
        leftover: bytes = b"",
        binary: bool = False,
        max_message: int = 65536,
        keepalive: float | None = 15.0,
        keepalive_timeout: float = 30.0,
        **options: Unpack[_SinkOptions],
    ) -> Self: ...
    @property
    def code(self) -> int | None: ...
    @property
    def violation(self) -> str | None: ...
    def close(self, code: int = 1000, reason: str = "") -> None: ...
    def __aiter__(self) -> Self: ...
    async def __anext__(self) -> str | bytes: ...
    async def __aenter__(self) -> Self: ...
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

@final
class Reservation:
    @property
    def buffers(self) -> tuple[memoryview, ...]: ...
    @property
    def size(self) -> int: ...
    def release(self) -> None: ...
    def __enter__(self) -> Reservation: ...
    def __exit__(self, *exception: object) -> None: ...

@final
class SinkEvents:
    def fileno(self) -> int: ...
    def clear(self) -> None: ...

@final
class Fate:
    seq: int
    outcome: Outcome
    reason: Reason | None
    committed_at: int | None
    finished_at: int | None
    acked_at: int | None
    scheduled_at: int | None
    departed_at: int | None
    horizon: int
    unread: int | None
    text: str

@final
class Fates(Iterator[Fate]):
    def __iter__(self) -> Fates: ...
    def __next__(self) -> Fate: ...

@final
class Stats:
    carrier: str
    committed: int
    finished: int
    bytes: int
    acked: int
    drops: dict[str, int]
    overwritten: int
    horizon: int
    horizon_max: int
    reserve: int
    age_at_commit_mean: float
    age_at_commit_max: float
    rate: int | None
    rtt: float
    min_rtt: float
    writes: int
    unread: int | None
    unread_by: str | None
    held_unread: float
    times_held_unread: int

@final
class Record:
    id: int
    payload: bytes
    arrived: int

@final
class Abandoned:
    id: int

@final
class Receiver(Iterator[Record | Abandoned], AsyncIterator[Record | Abandoned]):
    def __new__(cls, socket: _HasFileno, max_record_bytes: int = 16777216) -> Receiver: ...
    def recv(self, timeout: float | None = None) -> Record | Abandoned | None: ...
    def fileno(self) -> int: ...
    def __iter__(self) -> Receiver: ...
    def __next__(self) -> Record | Abandoned: ...
    def __aiter__(self) -> Receiver: ...
    async def __anext__(self) -> Record | Abandoned: ...

_Rate = str | int | None
_Both = tuple[_Rate, _Rate]

@final
class Link:
    near: str
    far: str
    def __new__(
        cls,
        *,
        rate: _Rate | _Both = None,
        delay: str | float | tuple[str | float | None, str | float | None] | None = None,
        queue: str | int | tuple[str | int | None, str | int | None] | None = None,
        loss: str | float | tuple[str | float | None, str | float | None] | None = None,
        burst: float | tuple[float | None, float | None] | None = None,
        reorder: str | tuple[str | None, str | None] | None = None,
        seed: int = 0,
        to: tuple[str, int] | None = None,
    ) -> Link: ...
    @property
    def address(self) -> tuple[str, int] | None: ...
    def socket(
        self,
        end: Literal["near", "far"],
        family: int = _socket.AF_INET,
        type: int = _socket.SOCK_STREAM,
        proto: int = 0,
    ) -> _socket.socket: ...
    def listen(self, port: int = 0, *, backlog: int = 16) -> _socket.socket: ...
    def connect(
        self, to: _socket.socket | int | None = None, *, timeout: float | None = None
    ) -> _socket.socket: ...
    def set_rate(self, rate: _Rate, direction: Literal["up", "down"] | None = None) -> None: ...
    def stats(self) -> LinkStats: ...
    def close(self) -> list[str]: ...
    def __enter__(self) -> Link: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

@final
class LinkCounters:
    offered_packets: int
    offered_bytes: int
    delivered_packets: int
    delivered_bytes: int
    lost_packets: int
    dropped_packets: int
    queued_bytes: int
    queue_peak_bytes: int
    queue_delay_max: float

@final
class LinkStats:
    up: LinkCounters
    down: LinkCounters
    late: float
