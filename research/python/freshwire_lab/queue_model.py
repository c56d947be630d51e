"""The receive queue of Choi, Kim and Yoo (2007) as SimPy processes: a second model beside research/sim.

Three processes share one processor: arrivals, the system, and the program's recv(). The system comes first: an arrival interrupts
recv(), which goes on with what was left of it once the system has nothing to do. One transaction takes all packets that wait. With
push, a packet that passes the check point empties the buffer first if it holds more than the threshold.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

import simpy

if TYPE_CHECKING:
    from collections.abc import Generator

ALPHA = 0.2
"""The article's weight of the newest push."""
FAST = 0.8
"""The weight of the newest interval between arrivals; the article names a fast filter and no number."""


@dataclass(frozen=True)
class Setting:
    """The article's table 1, and what it leaves open."""

    arrival: float = 2.0
    delay: float = 5.0
    nic: int = 300
    socket: int = 64
    length: float = 300.0
    receive: float = 1.0
    receive_packets: int = 10
    push_packets: int = 0
    """Packets that a push moves; 0 is the plain system."""
    push: float = 0.1


@dataclass
class Result:
    """What one experiment has come to."""

    observed: list[int] = field(default_factory=list)
    area: float = 0.0
    idle: float = 0.0
    refused: int = 0
    takes: int = 0
    pushes: int = 0
    taken: int = 0


class Threshold:
    """min(2L/3, L - lambda m) of the article's figure 5."""

    def __init__(self, size: int) -> None:
        """Begins with two thirds of the buffer."""
        self.size = size
        self.mean_push = math.nan
        self.interval = math.nan
        self.last = math.nan

    def arrived(self, now: float) -> None:
        """Follows the arrival interval."""
        gap = now - self.last
        if not math.isnan(gap):
            self.interval = gap if math.isnan(self.interval) else FAST * gap + (1 - FAST) * self.interval
        self.last = now

    def pushed(self, took: float) -> None:
        """Follows the time of a push."""
        self.mean_push = took if math.isnan(self.mean_push) else ALPHA * took + (1 - ALPHA) * self.mean_push

    def value(self) -> float:
        """In packets."""
        start = 2 * self.size / 3
        if math.isnan(self.mean_push) or math.isnan(self.interval):
            return start
        return max(0.0, min(start, self.size - self.mean_push / self.interval))


class Machine:
    """One processor with its queues."""

    def __init__(self, setting: Setting, seed: int) -> None:
        """Nothing has arrived yet."""
        self.setting = setting
        self.random = random.Random(seed)
        self.env = simpy.Environment()
        self.nic = 0
        self.buffer = 0
        self.busy = False
        self.since = 0.0
        self.threshold = Threshold(setting.socket)
        self.result = Result()
        self.arrival = self.env.event()
        self.idle = self.env.event()
        self.receiving = False
        self.env.process(self.arrivals())
        self.env.process(self.system())
        self.program = self.env.process(self.recv())

    def run(self) -> Result:
        """The whole experiment."""
        self.env.run(until=self.setting.length)
        self.change(self.buffer)
        return self.result

    def exponential(self, mean: float) -> float:
        """A time, in ticks."""
        return self.random.expovariate(1 / mean)

    def change(self, length: int) -> None:
        """The buffer is this long from now on."""
        now = self.env.now
        self.result.area += self.buffer * (now - self.since)
        if not self.busy:
            self.result.idle += now - self.since
        self.since = now
        self.buffer = length

    def arrivals(self) -> Generator[Any, Any, None]:
        """A Poisson stream into the card's queue."""
        while True:
            yield self.env.timeout(self.exponential(self.setting.arrival))
            self.threshold.arrived(self.env.now)
            if self.nic < self.setting.nic:
                self.nic += 1
            if not self.busy:
                self.change(self.buffer)
                self.busy = True
                if self.receiving:
                    self.program.interrupt()
                self.arrival.succeed()
                self.arrival = self.env.event()

    def system(self) -> Generator[Any, Any, None]:
        """Transactions, as long as packets wait; then processes may run."""
        while True:
            yield self.arrival
            while self.nic:
                packets = self.nic
                yield self.env.timeout(self.setting.delay)
                self.nic -= packets
                pushing = sum(self.packet() for _ in range(packets))
                if pushing:
                    yield self.env.timeout(pushing)
            self.change(self.buffer)
            self.busy = False
            self.idle.succeed()
            self.idle = self.env.event()

    def packet(self) -> float:
        """One packet passes the check point into the buffer; the time of the push that it causes."""
        setting, took = self.setting, 0.0
        if setting.push_packets and self.buffer > self.threshold.value():
            took = self.exponential(setting.push)
            self.threshold.pushed(took)
            self.result.pushes += 1
            self.take(setting.push_packets)
        if self.buffer < setting.socket:
            self.change(self.buffer + 1)
        else:
            self.result.refused += 1
        self.result.observed.append(self.buffer)
        return took

    def take(self, most: int) -> None:
        """The program gets packets."""
        packets = min(self.buffer, most)
        self.change(self.buffer - packets)
        self.result.takes += 1
        self.result.taken += packets
        self.result.observed.append(self.buffer)

    def recv(self) -> Generator[Any, Any, None]:
        """The program, whenever it may run and has something to take."""
        while True:
            while self.busy or not self.buffer:
                yield self.idle
            left = self.exponential(self.setting.receive)
            while left > 0:
                while self.busy:
                    yield self.idle
                begin = self.env.now
                self.receiving = True
                try:
                    yield self.env.timeout(left)
                    left = 0.0
                except simpy.Interrupt:
                    left -= self.env.now - begin
                self.receiving = False
            if self.buffer:
                self.take(self.setting.receive_packets)


def means(setting: Setting, seed: int, repetitions: int) -> list[tuple[float, float]]:
    """Mean and standard error of each number that research/sim has pinned, in its order."""
    rows: list[list[float]] = []
    for repetition in range(repetitions):
        result = Machine(setting, seed + repetition).run()
        observed = fmean(result.observed) if result.observed else 0.0
        counts = [float(n) for n in (result.refused, result.takes, result.pushes, result.taken)]
        rows.append([observed, result.area / setting.length, result.idle, *counts])
    columns = list(zip(*rows, strict=True))
    return [(fmean(column), stdev(column) / math.sqrt(repetitions)) for column in columns]
