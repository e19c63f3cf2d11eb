"""Elections, without regard to how their user waits.

Promised: the event of a term is set before another candidate can be elected, and a leader that resigns leaves office after the work of its
term has ended. Not promised: that the last messages of the former leader have arrived; compare tokens where that matters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ._channel import Request
from ._core import Core
from ._duration import Duration, seconds
from ._engine import Engine
from ._errors import LeaseError
from ._flow import Flow
from ._future import Cancelled, Future
from ._held import Held


class Leader(NamedTuple):
    """Who leads now."""

    holder: str
    token: int
    lease: int


class Candidacy:
    """One candidate: what its sync and asyncio forms share."""

    def __init__(self, core: Core, name: str, ttl: Duration, priority: int, budget: Duration | None = None, yields: bool = False) -> None:
        self.core = core
        self._priority = priority
        self._budget = None if budget is None else seconds(budget, "budget")
        self._yields = yields
        self.office = f"election/{name}"
        self.stopped = False
        self._request = core.asked("election", self.office, {"ttl": seconds(ttl, "ttl"), "priority": priority, "renew": "continuous"}, True)
        self._waiting: Future[Held] | None = None
        #: Ends the present term's work.
        self.on_stop: Callable[[], None] | None = None

    def stand(self) -> Flow[Held | None]:
        """Waits to be elected. None: the candidacy was ended."""
        if self.stopped:
            return None
        future = self.core.do(lambda engine: engine.acquire(self._request))
        self._waiting = future
        try:
            held: Held = yield future
        except BaseException as error:
            if not (isinstance(error, LeaseError) and future.done()):
                self.core.owner.post(lambda engine: engine.cancel(future))
            if self.stopped and isinstance(error, (LeaseError, Cancelled)):
                return None
            raise
        finally:
            self._waiting = None
        if self.stopped:
            self.core.owner.post(lambda engine: engine.release(held))
            return None
        return held

    # The term

    def begin_term(self, held: Held, resign: Callable[[], None]) -> Callable[[], None]:
        """Resigns when a candidate of higher priority waits, if the leader yields. Returns what ends that."""
        if not self._yields:
            return lambda: None

        def look(events: list[dict[str, Any]]) -> None:
            self.core.engine.channel.send(("LEASE.SHOW", self.office), shown, kind="read")

        def shown(value: Any, error: LeaseError | None, request: Request) -> None:
            queue = value.get("queue", []) if isinstance(value, dict) else []
            if held.reason is None and any(isinstance(waiter, dict) and waiter.get("priority", 0) > self._priority for waiter in queue):
                self.core.engine.later(resign)

        def begin(engine: Engine) -> None:
            # Without events, as with a key that may not watch, the term goes on until it ends or is lost.
            engine.watches.begin(self.office, look).add_done_callback(lambda begun: begun.exception())
            look([])

        self.core.owner.post(begin)
        return lambda: self.core.owner.post(lambda engine: engine.watches.end(self.office, look))

    def must_end(self, held: Held, successor: Callable[[], str | None]) -> None:
        """The work was told to end. Work that does not end within its budget loses the office anyway."""
        if self._budget is None or held.reason is not None:
            return
        budget = self._budget

        def leave(engine: Engine) -> None:
            to = successor()
            if held.reason is not None:
                return
            if to is None:
                engine.release(held)
            else:
                engine.renewals.end(held, f"transferred to {to}")
                engine.change("LEASE.TRANSFER", held.id, "TO", to, "STOPPED")

        self.core.owner.post(lambda engine: engine.timers.at(engine.clock.read().monotonic + budget, lambda: leave(engine)))

    def stop(self) -> None:
        """Ends the candidacy: a wait ends, and the present term is told to end."""
        self.stopped = True
        waiting = self._waiting
        if waiting is not None:
            self.core.owner.post(lambda engine: engine.cancel(waiting))
        if self.on_stop is not None:
            self.on_stop()

    def leave(self, held: Held, successor: str | None) -> Flow[None]:
        """The work has ended. An undelivered release lapses by itself, and the candidacy goes on."""
        try:
            if successor is not None and held.held:
                try:
                    yield from self.core.transfer(held, successor)
                    return
                except LeaseError:
                    pass
            yield self.core.do(lambda engine: engine.release(held) if held.reason is None else engine.give_back(held.id, held.term))
        except LeaseError:
            pass

    def leader(self) -> Flow[Leader | None]:
        shown = yield self.core.read("LEASE.SHOW", self.office)
        return leader_of(shown)


def leader_of(shown: dict[str, Any]) -> Leader | None:
    for grant in shown.get("grants", []):
        if grant.get("status") != "frozen":
            return Leader(str(grant["holder"]), int(grant["token"]), int(grant["lease"]))
    return None


def leader_after(leader: Leader | None, events: list[dict[str, Any]]) -> Leader | None:
    for event in events:
        if event.get("type") == "granted":
            leader = Leader(str(event.get("holder", "")), int(event.get("token", 0)), int(event["lease"]))
        elif event.get("type") in ("released", "lapsed", "revoked", "transferred") and leader and leader.lease == event.get("lease"):
            leader = None
    return leader
