"""Time as the client sees it. Injected, so that tests move it by hand."""

from __future__ import annotations

import time
from typing import NamedTuple, Protocol


class Reading(NamedTuple):
    """One moment on two clocks. A suspended machine stops the first and not the second, so a lease is over when either says so."""

    monotonic: float
    boottime: float

    def plus(self, seconds: float) -> Reading:
        return Reading(self.monotonic + seconds, self.boottime + seconds)

    def passed(self, now: Reading) -> bool:
        """Whether this moment has been reached on one of the clocks."""
        return now.monotonic >= self.monotonic or now.boottime >= self.boottime

    def until(self, now: Reading) -> float:
        return min(self.monotonic - now.monotonic, self.boottime - now.boottime)


class Clock(Protocol):
    def read(self) -> Reading: ...


class SystemClock:
    """The clocks of this machine. Where there is no clock that counts through a suspend, the monotonic one stands for both."""

    def __init__(self) -> None:
        boot = getattr(time, "CLOCK_BOOTTIME", None)
        self._boottime = time.monotonic if boot is None else lambda: time.clock_gettime(boot)

    def read(self) -> Reading:
        return Reading(time.monotonic(), self._boottime())
