"""Time as the client sees it. Injected, so that tests move it by hand."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable
from typing import NamedTuple, Protocol


class Reading(NamedTuple):
    """One moment on two clocks. A suspended machine stops the first and not the second, so a lease is over when either says so."""

    monotonic: float
    boottime: float

    def plus(self, seconds: float) -> Reading:
        return _reading(Reading, (self.monotonic + seconds, self.boottime + seconds))

    def passed(self, now: Reading) -> bool:
        """Whether this moment has been reached on one of the clocks."""
        return now.monotonic >= self.monotonic or now.boottime >= self.boottime

    def until(self, now: Reading) -> float:
        return min(self.monotonic - now.monotonic, self.boottime - now.boottime)


#: The constructor of a named tuple takes twice as long, and clocks are read at every step.
_reading = tuple.__new__


class Clock(Protocol):
    """Where time comes from. ``leasehold_client.testing.ManualClock`` is one that a test moves."""

    def read(self) -> Reading: ...

    def wall(self) -> float:
        """The wall clock. Used only to notice that it jumped, as after a machine was restored from a snapshot."""
        ...


class SystemClock:
    """The clocks of this machine. Where there is no clock that counts through a suspend, the monotonic one stands for both."""

    def __init__(self) -> None:
        self._boottime = _boottime()

    def read(self) -> Reading:
        return _reading(Reading, (time.monotonic(), self._boottime()))

    def wall(self) -> float:
        return time.time()


def _boottime() -> Callable[[], float]:
    # On macOS time.monotonic() stops during sleep and CLOCK_MONOTONIC does not. On Windows time.monotonic() counts through a sleep.
    name = "CLOCK_MONOTONIC" if sys.platform == "darwin" else "CLOCK_BOOTTIME"
    clock: int | None = getattr(time, name, None)
    if clock is None:
        return time.monotonic
    return functools.partial(time.clock_gettime, clock)
