"""Notices about a lease that is still held: that it is in jeopardy, and that another client would like it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ._channel import Request
from ._errors import LeaseError
from ._timers import Timer

if TYPE_CHECKING:
    from ._engine import Engine
    from ._held import Held

#: A lease is in jeopardy when this part of its term is left and no renewal was answered.
JEOPARDY = 1 / 4


class Notices:
    """Made when a program first asks for notices of a lease, so that ten thousand leases without any cost nothing. Used in the engine."""

    def __init__(self, engine: Engine, held: Held) -> None:
        self._engine = engine
        self._held = held
        self._jeopardy: list[Callable[[float], None]] = []
        self._recalls: list[Callable[[str], None]] = []
        self._timer: Timer | None = None
        self._watching = False
        self._endangered = False
        #: The client that asked for the lease, "" when its name is not known; None: it was not recalled.
        self.recalled: str | None = None

    # Jeopardy

    def on_jeopardy(self, callback: Callable[[float], None]) -> None:
        self._jeopardy.append(callback)
        if self._endangered and self._held.in_jeopardy:
            self._engine.later(functools.partial(self._warn, callback))
        elif self._timer is None:
            self._plan()

    def _plan(self) -> None:
        held = self._held
        # After a warning the deadline is next: a renewal has moved it by then, or the lease is lost.
        moment = held.deadline.monotonic - (0.0 if self._endangered else held.term * JEOPARDY)
        self._timer = self._engine.timers.at(moment, self._look)

    def _look(self) -> None:
        held = self._held
        # After a stall it may be over, and the timer that says so is still to come.
        if not held.held and (held.over or held.reason is not None):
            return
        endangered = held.in_jeopardy
        if endangered and not self._endangered:
            for callback in self._jeopardy:
                self._engine.later(functools.partial(self._warn, callback))
        self._endangered = endangered
        self._plan()

    def _warn(self, callback: Callable[[float], None]) -> None:
        """On the thread that calls back, which may be late."""
        left = self._held.remaining()
        if left > 0:
            callback(left)

    # Recalls

    def on_recalled(self, callback: Callable[[str], None]) -> None:
        if self.recalled is not None:
            self._engine.later(functools.partial(callback, self.recalled))
            return
        self._recalls.append(callback)
        if self._watching:
            return
        self._watching = True
        for resource in self._held.resources:
            begun = self._engine.watches.begin(resource, self._told)
            begun.add_done_callback(lambda begun: begun.exception())  # a key that may not watch is told nothing
        self._ask()

    def _ask(self) -> None:
        """It may have been recalled before the watch began, or while there was a gap."""

        def done(value: Any, error: LeaseError | None, request: Request) -> None:
            if isinstance(value, dict) and value.get("recalled"):
                self._recall("")

        self._engine.channel.send(("LEASE.INFO", self._held.id), done, kind="read")

    def _told(self, events: list[dict[str, Any]]) -> None:
        if events[0].get("type") == "resync":
            return self._ask()
        for event in events:
            if event.get("lease") != self._held.id:
                continue
            if event.get("type") == "recalled":
                self._recall(str(event.get("by") or ""))
            elif event.get("type") in ("revoked", "transferred"):
                self._engine.renewals.gone(self._held)

    def _recall(self, by: str) -> None:
        if self.recalled is not None or self._held.reason is not None:
            return
        self.recalled = by
        for callback in self._recalls:
            self._engine.later(functools.partial(callback, by))

    def end(self) -> None:
        """The lease is over."""
        if self._timer is not None:
            self._timer.cancel()
        if self._watching:
            for resource in self._held.resources:
                self._engine.watches.end(resource, self._told)
