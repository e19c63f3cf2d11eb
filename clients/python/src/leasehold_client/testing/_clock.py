"""A clock that a test moves."""

from __future__ import annotations

from .._clock import Reading


class ManualClock:
    """One machine whose time moves only when it is told to. ``World`` moves it, and fires what falls due on the way."""

    def __init__(self) -> None:
        self._monotonic = 1_000.0
        self._slept = 0.0
        self._wall = 1_700_000_000.0

    def read(self) -> Reading:
        return Reading(self._monotonic, self._monotonic + self._slept)

    def wall(self) -> float:
        return self._wall

    def move(self, seconds: float) -> None:
        """Time passes, and nothing runs."""
        self._monotonic += seconds
        self._wall += seconds

    def move_to(self, moment: float) -> None:
        if moment > self._monotonic:
            self._wall += moment - self._monotonic
            self._monotonic = moment  # exactly: a sum could fall short of it

    def sleep_machine(self, seconds: float) -> None:
        """The machine is suspended: its uptime and wall clock go on, its monotonic clock and timers stand still."""
        self._slept += seconds
        self._wall += seconds

    def step_wall(self, seconds: float) -> None:
        """Someone sets the wall clock, or the machine was restored from a snapshot."""
        self._wall += seconds
