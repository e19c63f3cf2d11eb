"""A lease as its holder knows it: until when it may be trusted, and why it ended."""

from __future__ import annotations

import math
from typing import Any

from ._clock import Clock, Reading
from ._errors import LeaseError, LeaseLost

#: By how much the rate of any clock may be off, unless the options say otherwise.
CLOCK_ERROR = 0.005


def margin(term: float, clock_error: float) -> float:
    """The part of a term that the holder gives up: twice the clock error, and of short terms enough for a late timer."""
    return max(2 * clock_error * term, min(0.05, term / 10))


class Held:
    """Written by the engine only. Reading it needs no lock: ``deadline`` is replaced whole."""

    __slots__ = (
        "_clock",
        "callbacks",
        "deadline",
        "granted",
        "id",
        "on_end",
        "reason",
        "renewed",
        "renewing",
        "resources",
        "term",
        "tokens",
        "ttl",
        "wake",
    )

    def __init__(self, clock: Clock, lease: int, ttl: float, resources: tuple[str, ...], tokens: dict[str, int]) -> None:
        self._clock = clock
        self.id = lease
        self.ttl = ttl
        self.term = ttl
        self.resources = resources
        self.tokens = tokens
        self.granted = clock.read()
        #: When the request that was last answered had been sent.
        self.renewed = self.granted
        self.deadline = self.granted
        #: The next moment at which the engine looks at it; older timers are ignored.
        self.wake = math.inf
        self.renewing = False
        self.reason: LeaseError | None = None
        self.callbacks: list[Any] = []
        self.on_end: Any = None

    @property
    def name(self) -> str:
        return ", ".join(self.resources) or f"lease {self.id}"

    def extend(self, sent: Reading, term: float, clock_error: float) -> None:
        """An answer to what was sent at ``sent`` gave it ``term``. Counted from before the send: the server cannot have begun earlier."""
        self.term = term
        self.renewed = sent
        self.deadline = sent.plus(term - margin(term, clock_error))

    @property
    def held(self) -> bool:
        """Asks the clocks, so it is right even when this process was stopped and its timers are late."""
        return self.reason is None and not self.deadline.passed(self._clock.read())

    def remaining(self) -> float:
        return max(0.0, self.deadline.until(self._clock.read())) if self.reason is None else 0.0

    def lost(self, cause: str, why: str) -> LeaseLost:
        now = self._clock.read()
        duration = round(now.monotonic - self.granted.monotonic, 3)
        facts = {"cause": cause, "lease": self.id, "resources": list(self.resources), "held": duration}
        return LeaseLost(f"{self.name} was lost after {duration} s: {why}", facts)

    def end_reason(self) -> LeaseError:
        """Why it is not held. Called only when it is not."""
        return self.reason or self.lost("deadline", "no renewal was answered in time")
