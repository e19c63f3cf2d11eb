"""A lease as its holder knows it: until when it is valid, and why it ended."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ._clock import Clock, Reading
from ._duration import in_words
from ._errors import LeaseError, LeaseLost

if TYPE_CHECKING:
    from ._notices import Notices

#: By how much the rate of any clock may be off, unless the options say otherwise.
CLOCK_ERROR = 0.005
#: A larger change of the wall clock against the machine's uptime is a jump that needs an explanation.
WALL_JUMP = 0.5

_EXPIRED = {
    "suspend": "this machine slept for {}",
    "stall": "this process stood still for {}",
    "inactive": "there was no activity for {}",
    "unreachable": "no renewal was answered for {}",
}


#: Until a request was answered, nothing is held.
_NEVER = Reading(float("-inf"), float("-inf"))


def margin(term: float, clock_error: float) -> float:
    """The part of a term that the holder gives up: twice the clock error, and of short terms enough for a late timer."""
    return max(2 * clock_error * term, min(0.05, term / 10))


class ClockWatch:
    """Notices that the wall clock jumped. A machine restored from a snapshot looks like this: its other clocks stood still, and cannot
    show it. Answers to requests sent before the jump prove nothing then, so leases are not held until they are renewed again."""

    __slots__ = ("_clock", "_offset", "doubted")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset = clock.wall() - clock.read().boottime
        #: Answers to requests up to this number prove nothing.
        self.doubted = 0

    def jumped(self, now: Reading) -> bool:
        return abs(self._clock.wall() - now.boottime - self._offset) > WALL_JUMP

    def accept(self, now: Reading, last_request: int) -> None:
        self._offset = self._clock.wall() - now.boottime
        self.doubted = last_request

    def follow(self, now: Reading) -> None:
        """Small steps and slews are no jump, however many there are."""
        self._offset = self._clock.wall() - now.boottime


class Held:
    """Written by the engine only, except for ``over``. Reading it needs no lock: ``deadline`` is replaced whole."""

    __slots__ = (
        "_clock",
        "_pid",
        "_watch",
        "callbacks",
        "children",
        "deadline",
        "ending",
        "group",
        "holder",
        "id",
        "notices",
        "number",
        "on_end",
        "over",
        "parent",
        "reason",
        "released",
        "renewed",
        "renewing",
        "reported",
        "resources",
        "shared",
        "strategy",
        "term",
        "tokens",
        "touched",
        "ttl",
        "until_stopped",
    )

    def __init__(
        self, clock: Clock, watch: ClockWatch, lease: int, ttl: float, resources: tuple[str, ...], tokens: dict[str, int], strategy: str
    ) -> None:
        self._clock = clock
        self._watch = watch
        self._pid = os.getpid()
        self.id = lease
        self.ttl = ttl
        self.term = ttl
        self.resources = resources
        self.tokens = tokens
        self.strategy = strategy
        self.holder = ""
        #: When the request that was last answered had been sent, and its number.
        self.renewed = _NEVER
        self.number = 0
        self.deadline = _NEVER
        self.renewing = False
        self.touched = False
        self.group: Any = None
        #: A caller was told that it is over. No answer may bring it back from then on.
        self.over = False
        #: The server has ended it, and the engine asks why.
        self.ending = False
        self.reason: LeaseError | None = None
        #: Whether the user's code was told of the loss, by an exception, a callback or an event.
        self.reported = False
        #: Several callers were given it, with ``reuse``.
        self.shared = False
        self.released: Any = None
        self.callbacks: list[Callable[[LeaseLost], None]] = []
        self.on_end: list[Callable[[], object]] = []
        self.parent: Held | None = None
        self.children: set[Held] | None = None
        self.notices: Notices | None = None
        #: Passed the release of a lost lease, which it calls when the work under the lease has ended.
        self.until_stopped: Callable[[Callable[[], object]], None] | None = None

    @property
    def name(self) -> str:
        return f"{', '.join(self.resources)} (lease {self.id})" if self.resources else f"lease {self.id}"

    @property
    def facts(self) -> dict[str, Any]:
        return {"lease": self.id, "resource": self.resources[0] if self.resources else "", "holder": self.holder}

    def when_over(self, call: Callable[[], object]) -> None:
        """Calls it when the lease is over, from the engine; at once if it is. May call it twice, when it is over just now."""
        self.on_end.append(call)
        if self.reason is not None:
            call()

    def extend(self, sent: Reading, number: int, term: float, clock_error: float) -> None:
        """An answer to what was sent at ``sent`` gave it ``term``. Counted from before the send: the server cannot have begun earlier."""
        self.term = term
        self.renewed = sent
        self.number = number
        self.deadline = sent.plus(term - margin(term, clock_error))

    @property
    def held(self) -> bool:
        """Asks the clocks, so it is right even when this process was stopped and its timers are late."""
        if self.reason is not None or self.over or self.ending or os.getpid() != self._pid:
            return False
        now = self._clock.read()
        if self.deadline.passed(now):
            self.over = True
            return False
        return self.number > self._watch.doubted and not self._watch.jumped(now)

    def remaining(self) -> float:
        return max(0.0, self.deadline.until(self._clock.read())) if self.held else 0.0

    @property
    def in_jeopardy(self) -> bool:
        """A quarter of the term is left, or less: renewals stay unanswered."""
        return self.deadline.until(self._clock.read()) <= self.term / 4

    def lost(self, cause: str, text: str, duration: float = 0.0, by: str = "") -> LeaseLost:
        facts = {**self.facts, "cause": cause, "ms": round(duration * 1000)}
        return LeaseLost("LOST", f"{self.name} is lost: {text}", {**facts, "by": by} if by else facts)

    def expired(self, stall: float = 0.0, unanswered: bool = True) -> LeaseLost:
        """What to say when the clocks ended it. ``stall``: for how long this process stood still since the last renewal."""
        now = self._clock.read()
        ran = now.monotonic - self.renewed.monotonic
        slept = now.boottime - self.renewed.boottime - ran
        # A shorter difference explains nothing: the process did not run for a moment between the readings of its two clocks.
        if slept * 4 > self.term:
            cause, duration = "suspend", slept
        elif self.strategy == "on-activity" and not self.touched and not unanswered:
            cause, duration = "inactive", ran
        elif stall * 4 > self.term:
            cause, duration = "stall", stall
        else:
            cause, duration = "unreachable", ran
        return self.lost(cause, _EXPIRED[cause].format(in_words(duration)), duration)

    def end_reason(self) -> LeaseError:
        """Why it is not held. Called only when it is not."""
        if os.getpid() != self._pid:
            return fork_error()
        if self.reason is not None:
            return self.reason
        if self.ending:
            return self.lost("ended", "the lessor has ended it: ended")
        if self.over:
            return self.expired()
        return self.lost("clock", "the wall clock of this machine jumped: the lease is not valid until it is renewed")


def fork_error() -> LeaseError:
    return LeaseError("INVALID", "this client was made in another process: after a fork, call connect() in the child")
