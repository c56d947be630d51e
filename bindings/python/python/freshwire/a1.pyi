from collections.abc import AsyncIterator, Iterator
from types import TracebackType
from typing import ClassVar, Literal, TypedDict, final

from typing_extensions import Buffer, Unpack

from . import NetworkQos, Reason

_Protection = Literal["aead", "dangerous-plain", "other"]

class _QosFields(TypedDict, total=False):
    send_average: int | None
    send_burst: int
    receive_average: int | None
    receive_burst: int
    priority: int
    checksum: bool
    retransmission: bool
    max_send_message: int
    max_receive_message: int
    outstanding: int

@final
class Qos:
    MAX_MESSAGE: ClassVar[int]
    MAX_OUTSTANDING: ClassVar[int]
    MAX_WINDOW: ClassVar[int]
    def __new__(cls, **fields: Unpack[_QosFields]) -> Qos: ...
    def replace(self, **fields: Unpack[_QosFields]) -> Qos: ...
    @property
    def send_average(self) -> int | None: ...
    @property
    def send_burst(self) -> int: ...
    @property
    def receive_average(self) -> int | None: ...
    @property
    def receive_burst(self) -> int: ...
    @property
    def priority(self) -> int: ...
    @property
    def checksum(self) -> bool: ...
    @property
    def retransmission(self) -> bool: ...
    @property
    def max_send_message(self) -> int: ...
    @property
    def max_receive_message(self) -> int: ...
    @property
    def outstanding(self) -> int: ...
    @property
    def receive_window(self) -> int: ...
    def within(self, maximum: Qos) -> Qos: ...
    def mirrored(self) -> Qos: ...

@final
class Join:
    def __new__(cls, most: int = 16, interface: int | str | None = None) -> Join: ...
    @property
    def most(self) -> int: ...

@final
class Limits:
    def __new__(
        cls,
        *,
        connections: int = 100_000,
        half_open: int = 1024,
        half_open_per_address: int = 128,
        retries_per_second: int = 10_000,
        responses_per_second: int = 2000,
        resets_per_second: int = 1000,
        handshake_time: float = 10.0,
    ) -> Limits: ...

@final
class Events:
    def fileno(self) -> int: ...
    def clear(self) -> None: ...
    def set(self) -> None: ...

@final
class Node(Iterator[Connection], AsyncIterator[Connection]):
    def __new__(
        cls,
        address: str = "0.0.0.0:0",
        *,
        key: str | None = None,
        psk: str | None = None,
        allowed: list[str] | None = None,
        accept: bool = True,
        backlog: int = 128,
        ask: bool = False,
        join: Join | None = None,
        receive_buffer: int = 2097152,
        busy_poll: float | None = 50e-6,
        tcp_fallback: bool = False,
        attempt_delay: float = 0.1,
        network: NetworkQos = ...,
        translate: bool = False,
        limits: Limits = ...,
        maximum: Qos = ...,
        protection: _Protection = "aead",
        idle_timeout: float = 30.0,
        keep_alive: float | None = None,
        ack_delay: float = 0.025,
        max_datagram: int | None = None,
        congestion: Literal["copa", "cubic", "newreno"] = "copa",
        ecn: bool = True,
        in_order: bool = False,
        fec: bool = True,
        fec_layers: int = 0,
    ) -> Node: ...
    @property
    def address(self) -> tuple[str, int]: ...
    @property
    def public_key(self) -> str: ...
    def connect(
        self, host: str, port: int, key: str, timeout: float = 10.0, *, qos: Qos | None = None
    ) -> Connection: ...
    async def connect_async(
        self, host: str, port: int, key: str, timeout: float = 10.0, *, qos: Qos | None = None
    ) -> Connection: ...
    def begin_connect(
        self, address: str, key: str, timeout: float = 10.0, *, qos: Qos | None = None
    ) -> Connecting: ...
    def reopen(
        self, connection: Connection, maximum: Qos, timeout: float = 10.0, *, qos: Qos | None = None
    ) -> Connection: ...
    @property
    def network_qos(self) -> NetworkQos: ...
    def accept(self, timeout: float | None = None) -> Connection | None: ...
    async def accept_async(self) -> Connection: ...
    def incoming(self, timeout: float | None = None) -> Incoming | None: ...
    async def incoming_async(self) -> Incoming: ...
    def events(self) -> Events: ...
    def group(
        self,
        address: str,
        rate: int,
        *,
        datagram: int = 1200,
        repair_for: float = 1.0,
        interface: int | str | None = None,
        hops: int = 1,
        to_this_machine: bool = True,
    ) -> Group: ...
    def stats(self) -> EndpointStats: ...
    def __iter__(self) -> Node: ...
    def __next__(self) -> Connection: ...
    def __aiter__(self) -> Node: ...
    async def __anext__(self) -> Connection: ...
    def close(self) -> None: ...
    def __enter__(self) -> Node: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

@final
class Connecting:
    def events(self) -> Events: ...
    def poll_open(self) -> Connection | None: ...

@final
class Incoming:
    @property
    def peer_address(self) -> tuple[str, int]: ...
    @property
    def peer_key(self) -> str: ...
    @property
    def protection(self) -> _Protection: ...
    @property
    def qos(self) -> Qos: ...
    @property
    def maximum(self) -> Qos: ...
    def accept(self, maximum: Qos | None = None) -> Connection: ...
    def refuse(self, code: int = 256, reason: str = "not wanted") -> None: ...

@final
class Message:
    id: int
    seq: int
    layer: int
    group: int
    key: int
    refs: tuple[int, int]
    age: float
    late: bool
    payload: bytes

class Closed:
    @final
    class Local(Closed):
        def __init__(self) -> None: ...

    @final
    class Peer(Closed):
        code: int
        reason: str
        def __init__(self, code: int, reason: str) -> None: ...

    @final
    class Silent(Closed):
        def __init__(self) -> None: ...

    @final
    class Violation(Closed):
        reason: str
        def __init__(self, reason: str) -> None: ...

    @final
    class PeerRestarted(Closed):
        def __init__(self) -> None: ...

    @final
    class KeysExhausted(Closed):
        def __init__(self) -> None: ...

    @final
    class Other(Closed):
        reason: str
        def __init__(self, reason: str) -> None: ...

class Missing:
    @final
    class Committed(Missing):
        id: int
        reason: Reason
        def __init__(self, id: int, reason: Reason) -> None: ...

    @final
    class OfGroup(Missing):
        group: int
        id: int
        reason: Reason
        def __init__(self, group: int, id: int, reason: Reason) -> None: ...

    @final
    class NeverCommitted(Missing):
        first: int
        count: int
        reason: Reason
        def __init__(self, first: int, count: int, reason: Reason) -> None: ...

@final
class ConnectionStatus:
    window_exceeded: bool
    rate_exceeded: bool
    qos_pending: bool
    qos_changed: bool
    over_tcp: bool
    closed: Closed | None

@final
class ConnectionStats:
    packets_sent: int
    bytes_sent: int
    packets_received: int
    bytes_received: int
    packets_lost: int
    spurious_losses: int
    payload_sent: int
    payload_resent: int
    parity_sent: int
    messages_made_whole: int
    packets_refused: int
    messages_received: int
    repairs_sent: int
    group_packets_received: int
    repairs_received: int

@final
class EndpointStats:
    malformed: int
    unknown: int
    retries: int
    wrong_cookies: int
    unauthentic: int
    resets: int
    refused: int
    over_limit: int
    queue_full: int

@final
class Membership:
    group: int
    address: tuple[str, int]
    joined: bool
    reason: str | None

@final
class Connection(Iterator[Message], AsyncIterator[Message]):
    def recv(self, timeout: float | None = None) -> Message | None: ...
    async def recv_async(self) -> Message: ...
    def events(self) -> Events: ...
    def __iter__(self) -> Connection: ...
    def __next__(self) -> Message: ...
    def __aiter__(self) -> Connection: ...
    async def __anext__(self) -> Message: ...
    @property
    def peer_address(self) -> tuple[str, int]: ...
    @property
    def peer_key(self) -> str | None: ...
    @property
    def qos(self) -> Qos | None: ...
    @property
    def maximum(self) -> Qos | None: ...
    def set_qos(self, qos: Qos) -> None: ...
    @property
    def protection(self) -> _Protection | None: ...
    def stats(self) -> ConnectionStats | None: ...
    def status(self) -> ConnectionStatus: ...
    @property
    def closed(self) -> Closed | None: ...
    def poll_missing(self) -> Missing | None: ...
    def memberships(self) -> list[Membership]: ...
    def close(self, code: int = 0, reason: str = "") -> None: ...

@final
class Group:
    @property
    def address(self) -> tuple[str, int]: ...
    @property
    def id(self) -> int: ...
    def invite(self, connection: Connection) -> None: ...
    def stats(self) -> GroupStats | None: ...

@final
class GroupStats:
    packets_sent: int
    bytes_sent: int
    packets_refused: int
    members: int

@final
class ByteStream(Iterator[bytes], AsyncIterator[bytes]):
    def __new__(cls, connection: Connection) -> ByteStream: ...
    def read(self, size: int = 65536, timeout: float | None = None) -> bytes | None: ...
    async def read_async(self, size: int = 65536) -> bytes: ...
    def write(self, data: Buffer, timeout: float | None = None) -> int: ...
    async def write_async(self, data: Buffer) -> None: ...
    def finish(self, timeout: float = 30.0) -> None: ...
    async def finish_async(self) -> None: ...
    def read_events(self) -> Events: ...
    def write_events(self) -> Events: ...
    def __iter__(self) -> ByteStream: ...
    def __next__(self) -> bytes: ...
    def __aiter__(self) -> ByteStream: ...
    async def __anext__(self) -> bytes: ...
    def close(self) -> None: ...
    def __enter__(self) -> ByteStream: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

def generate_key() -> tuple[str, str]: ...
