"""Timers of the engine: a heap whose cancelled entries are removed in bulk."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable


class Timer:
    """A call at a moment of the monotonic clock. ``cancel`` is cheap and may be repeated."""

    __slots__ = ("_timers", "call", "moment")

    def __init__(self, timers: Timers, moment: float, call: Callable[[], None]) -> None:
        self._timers: Timers | None = timers
        self.moment = moment
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        timers, self._timers, self.call = self._timers, None, None
        if timers is not None:
            timers.cancelled()

    def fired(self) -> Callable[[], None] | None:
        call, self.call, self._timers = self.call, None, None
        return call


class Timers:
    """Most timers of requests are cancelled long before they are due, so the heap is rebuilt when half of it is cancelled."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Timer]] = []
        self._numbers = itertools.count()
        self._cancelled = 0

    def at(self, moment: float, call: Callable[[], None]) -> Timer:
        timer = Timer(self, moment, call)
        heapq.heappush(self._heap, (moment, next(self._numbers), timer))
        return timer

    def next(self) -> float | None:
        while self._heap and self._heap[0][2].call is None:
            heapq.heappop(self._heap)
            self._cancelled -= 1
        return self._heap[0][0] if self._heap else None

    def run(self, now: float) -> None:
        """Calls what is due. What a call schedules for the same moment runs in this round as well."""
        while self._heap and self._heap[0][0] <= now:
            timer = heapq.heappop(self._heap)[2]
            call = timer.fired()
            if call is None:
                self._cancelled -= 1
            else:
                call()

    def cancelled(self) -> None:
        self._cancelled += 1
        if self._cancelled > 64 and self._cancelled * 2 > len(self._heap):
            self._heap = [item for item in self._heap if item[2].call is not None]
            heapq.heapify(self._heap)
            self._cancelled = 0

    def __len__(self) -> int:
        return len(self._heap) - self._cancelled
