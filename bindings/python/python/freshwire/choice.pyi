from collections.abc import Callable
from enum import Enum
from typing import Literal, final

from . import Reason

class Policy: ...

class Rule:
    @final
    class Expired(Rule):
        def __init__(self) -> None: ...

    @final
    class PredictedLate(Rule):
        margin: float
        def __init__(self, margin: float = 0.0) -> None: ...

    @final
    class DependencyClosure(Rule):
        def __init__(self) -> None: ...

    @final
    class LatestByKey(Rule):
        def __init__(self) -> None: ...

    @final
    class WindowEnd(Rule):
        window: float
        def __init__(self, window: float) -> None: ...

    @final
    class NewestGroup(Rule):
        def __init__(self) -> None: ...

    @final
    class LayerLimit(Rule):
        highest: int
        def __init__(self, highest: int) -> None: ...

class Order(Enum):
    Fifo = ...
    ByLayer = ...
    Newest = ...
    ByTurn = ...

class Decision:
    @final
    class Send(Decision):
        at: int
        def __init__(self, at: int) -> None: ...

    @final
    class Drop(Decision):
        at: int
        reason: Reason
        def __init__(self, at: int, reason: Reason = Reason.Application) -> None: ...

    @final
    class Wait(Decision):
        until: int | None
        def __init__(self, until: int | None = None) -> None: ...

@final
class Record:
    seq: int
    len: int
    layer: int
    group: int
    key: int
    refs: tuple[int, int]
    generated: int
    deadline: int | None

@final
class Link:
    rate: int | None
    rtt: float
    min_rtt: float
    in_flight: int
    unsent: int
    loss: float

def fifo() -> Policy: ...
def expiring() -> Policy: ...
def deadline(margin: float = 0.0) -> Policy: ...
def latest(weights: list[int] = []) -> Policy: ...
def layered(margin: float = 0.0) -> Policy: ...
def frames() -> Policy: ...
def screen() -> Policy: ...
def live() -> Policy: ...
def thesis(window: float) -> Policy: ...
def priority_progress(window: float) -> Policy: ...
def policy(rules: list[Rule], order: Order = Order.Fifo, weights: list[int] = []) -> Policy: ...
def from_function(
    function: Callable[[int, list[Record], Link], Decision], before: Policy | None = None
) -> Policy: ...

@final
class Gate:
    def acknowledge(self, total: int) -> None: ...
    def acknowledge_more(self, records: int) -> None: ...
    @property
    def outstanding(self) -> int: ...

def gate(policy: Policy, records: int) -> tuple[Policy, Gate]: ...

@final
class Cost:
    bytes_per_sec: int
    key_bytes: int
    key_interval: float

@final
class Selected:
    current: int | None
    wanted: int | None
    why: Literal["start", "carries", "slow", "late", "gone"]
    changes: int

@final
class Adaptive(Policy):
    def __new__(cls) -> Adaptive: ...
    def observe(
        self,
        len: int,
        *,
        seq: int,
        layer: int = 0,
        group: int = 0,
        key: int = 0,
        refs: tuple[int, int] = (0, 0),
        generated: int | None = None,
        deadline: int | None = None,
        expires_in: float | None = None,
    ) -> None: ...
    def set_present(self, rendition: int, is_present: bool) -> None: ...
    def for_another(self, allowed: int = 255) -> Adaptive: ...
    @property
    def selection(self) -> Selected: ...
    def cost(self, rendition: int) -> Cost | None: ...

def rendition_of(seq: int) -> int | None: ...
