"""One acquire, from the request to a lease in hand. However it ends, it leaves no lease behind."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ._channel import ANSWER_TIMEOUT, Request
from ._duration import in_words
from ._errors import LeaseError, LeaseLost, closed_error
from ._future import Future
from ._held import Held
from ._request import FOREVER, AcquireRequest
from ._timers import Timer

if TYPE_CHECKING:
    from ._engine import Engine

#: Pause before a new place in the queue is asked for.
REQUEUE = 0.05
#: How often the place in the queue is looked up for ``on_wait``.
POSITION_INTERVAL = 1.0
#: After a timeout, the holders of so many names are looked up, for at most so long.
MAX_NAMED, HOLDERS_TIMEOUT = 8, 0.25


class Acquiring:
    """``future`` gets the lease, or the error."""

    def __init__(self, engine: Engine, asked: AcquireRequest) -> None:
        self._engine = engine
        self._asked = asked
        self.future: Future[Held] = Future()
        self.over = False
        #: The lease of the place in the queue, while there is one.
        self.lease: int | None = None
        self.queued = False
        self._reached = False
        self._repeated = False
        self._began = 0.0
        self._timer: Timer | None = None
        self._request: Request | None = None
        self._poll: Timer | None = None
        self._position = -1
        if asked.wait is not None and asked.wait != FOREVER:
            self._began = engine.clock.read().monotonic
            self._timer = engine.timers.at(self._began + asked.wait, self._timed_out)

    def begin(self) -> None:
        if self.over:
            return
        engine, asked = self._engine, self._asked
        parent = asked.parent
        if isinstance(parent, Held) and parent.reason is not None:
            self._fail(LeaseError("GONE", f"its parent, {parent.name}, has ended", parent.facts))
            return engine.introduced(self, None)
        words = asked.words(engine.options.holder, engine.incarnation, engine.operation())
        timeout = FOREVER if asked.wait is not None else max(ANSWER_TIMEOUT, asked.ttl)
        request = self._request = engine.channel.send(words, self._answered, timeout=timeout)
        request.again = asked.wait is not None
        request.patient = asked.wait is not None and asked.wait != FOREVER
        request.late = self._unwanted

    def _answered(self, value: Any, error: LeaseError | None, request: Request) -> None:
        self._engine.introduced(self, value if error is None else None)
        if error is not None:
            return self._fail(error)
        if not isinstance(value, dict) or not isinstance(value.get("lease"), int):
            return self._fail(LeaseError("UNKNOWN", "the server answered something else than a lease"))
        self._reached = True
        self._repeated = request.copies > 1
        if self.over:
            return self._unwanted(value, request)
        self.lease = value["lease"]
        if "position" not in value:
            self._take(value, request)
            return
        self.queued = True
        self._engine.queued[value["lease"]] = self
        if self._asked.on_queued is not None:
            self._asked.on_queued(value["lease"])
        if self._asked.on_wait is not None:
            self._tell_position(value["position"])
            self._poll_later()

    def _unwanted(self, value: Any, request: Request) -> None:
        """Granted, or queued, after its caller had gone."""
        if isinstance(value, dict) and isinstance(value.get("lease"), int):
            self._engine.give_back(value["lease"], self._asked.ttl)

    # In the queue

    def _tell_position(self, position: int) -> None:
        on_wait = self._asked.on_wait
        if on_wait is not None and position != self._position:
            self._position = position
            self._engine.later(functools.partial(on_wait, position))

    def _poll_later(self) -> None:
        moment = self._engine.clock.read().monotonic + POSITION_INTERVAL
        self._poll = self._engine.timers.at(moment, self._ask_position)

    def _ask_position(self) -> None:
        if self.over or not self.queued:
            return

        def done(value: Any, error: LeaseError | None, request: Request) -> None:
            wants = value.get("wants", []) if isinstance(value, dict) else []
            places = [want.get("position") for want in wants if isinstance(want, dict)]
            if self.queued and not self.over and places:
                self._tell_position(max(place if isinstance(place, int) else 0 for place in places))
            if self.queued and not self.over:
                self._poll_later()

        assert self.lease is not None
        self._engine.channel.send(("LEASE.INFO", self.lease), done, kind="read", timeout=ANSWER_TIMEOUT)

    def pushed(self, kind: str, facts: Any) -> None:
        """News of the place in the queue."""
        self._leave_queue()
        facts = facts if isinstance(facts, dict) else {}
        if kind == "lease.granted":
            return self._confirm(facts)
        from ._received import received_error  # only where it is used

        error = received_error(str(facts.get("code", "UNKNOWN")), str(facts.get("message", "the wait was ended")), facts)
        # A repeated request is answered with the place that was lost with the former connection.
        if error.code in ("UNAVAILABLE", "UNKNOWN") or (error.code == "GONE" and self._repeated):
            self._again()
        else:
            self._fail(error)

    def connection_lost(self) -> None:
        """The server gives up the place of a waiter whose connection broke. It may have been granted just before."""
        if self.over or not self.queued or self.lease is None:
            return
        self._leave_queue()

        def done(value: Any, error: LeaseError | None, request: Request) -> None:
            if self.over:
                return
            if isinstance(value, dict) and value.get("status") == "live":
                grants = [grant for grant in value.get("grants", []) if isinstance(grant, dict)]
                tokens = {grant.get("resource"): grant.get("token") for grant in grants}
                self._confirm({"lease": self.lease, "token": next(iter(tokens.values()), 0), "tokens": tokens})
            else:
                self._again()

        self._engine.channel.send(("LEASE.INFO", self.lease), done, kind="read", timeout=FOREVER)

    def _leave_queue(self) -> None:
        self.queued = False
        if self.lease is not None:
            self._engine.queued.pop(self.lease, None)
        if self._poll is not None:
            self._poll.cancel()

    def _again(self) -> None:
        """Queues anew, under a new operation. The former place is given up first: it must not stand in our own way."""
        self._leave_queue()
        lease, self.lease = self.lease, None
        if lease is not None:
            self._engine.give_back(lease, self._asked.ttl)
        if not self.over:
            self._engine.timers.at(self._engine.clock.read().monotonic + REQUEUE, self.begin)

    # Granted

    def _confirm(self, facts: dict[str, Any]) -> None:
        """How long ago it was granted is not known: only a renewal sent from here on says until when it is ours."""
        if self.over or self.lease is None:
            return
        lease = self.lease

        def done(value: Any, error: LeaseError | None, request: Request) -> None:
            if self.over:
                return
            term = value[0] if error is None and isinstance(value, list) and len(value) == 1 else -1
            if term > 0:
                self._take({**facts, "lease": lease, "ttl": term}, request, confirmed=True)
            elif self._asked.wait is None:
                self._too_late(lease)
            else:
                self._again()

        self._engine.channel.send(("LEASE.RENEW", lease), done, timeout=max(1.0, self._asked.ttl))

    def _take(self, value: dict[str, Any], request: Request, confirmed: bool = False) -> None:
        engine, asked = self._engine, self._asked
        lease: int = value["lease"]
        known = engine.renewals.held.get(lease) if asked.reuse else None
        if known is not None:
            return self._take_again(known, value, request)
        tokens = value.get("tokens") or dict.fromkeys(asked.names[:1], value.get("token", 0))
        numbers = [value.get("ttl"), *(tokens.values() if isinstance(tokens, dict) else [None])]
        if not all(isinstance(number, int) for number in numbers):
            engine.give_back(lease, asked.ttl)
            return self._fail(LeaseError("UNKNOWN", "the server answered something else than a lease"))
        term = numbers[0] / 1000
        held = Held(
            engine.clock,
            engine.watch,
            lease,
            asked.ttl,
            tuple(tokens) if asked.any is not None else asked.names,
            {str(name): int(token) for name, token in tokens.items()},
            asked.renew,
        )
        held.holder = engine.options.holder
        held.extend(request.sent_at, request.number, term, engine.options.clock_error)
        left = held.deadline.until(engine.clock.read())
        # The first term of a long lease is short. What is renewed by activity alone must be lengthened now.
        short = term < asked.ttl and asked.renew == "on-activity"
        doubtful = request.number <= engine.watch.doubted
        if not confirmed and (left <= term / 4 or short or doubtful):
            return self._confirm(value)
        if left <= 0:
            return self._again() if asked.wait is not None else self._too_late(lease)
        held.number = 0
        self.lease = None
        parent = asked.parent
        if isinstance(parent, Held):
            if parent.reason is not None:
                engine.give_back(lease, asked.ttl)
                return self._fail(LeaseError("GONE", f"its parent, {parent.name}, has ended", parent.facts))
            held.parent = parent
            parent.children = parent.children or set()
            parent.children.add(held)
        engine.renewals.believe(held, request, term)
        if asked.max_hold is not None:
            engine.renewals.limit(held, asked.max_hold)
        self._end()
        if not self.future.set_result(held):
            engine.release(held)

    def _take_again(self, known: Held, value: dict[str, Any], request: Request) -> None:
        """The server answered with a lease that this process has in hand."""
        term = value.get("ttl")
        if not isinstance(term, int) or not self._engine.renewals.believe(known, request, term / 1000):
            self.lease = None  # its loss has given it back
            return self._again() if self._asked.wait is not None else self._fail(known.end_reason())
        self.lease = None
        known.shared = True
        self._end()
        self.future.set_result(known)

    def _too_late(self, lease: int) -> None:
        names, asked = self._asked.names, self._asked
        self._engine.give_back(lease, asked.ttl)
        text = f"{', '.join(names)} was granted, but the answer took longer than the ttl of {in_words(asked.ttl)}: the lease is released. "
        facts = {"resource": names[0] if names else "", "resources": list(names), "cause": "late-answer"}
        self._fail(LeaseLost("LOST", text + "Retry with a longer ttl", facts))

    # Ending

    def _timed_out(self) -> None:
        names, waited = self._asked.names, self._engine.clock.read().monotonic - self._began
        facts = {"resource": names[0] if names else "", "resources": list(names), "waited": round(waited * 1000)}
        failure = self._engine.channel.failure
        if not self._reached and failure is not None:
            text = f"no server answered within {in_words(waited)}: {failure.message}"
            return self.stop(LeaseError("UNAVAILABLE", text, facts))
        self._leave()
        self._look_up_holders(functools.partial(self._fail_with_holders, waited, facts))

    def _look_up_holders(self, found: Callable[[list[str]], None]) -> None:
        """For people and facts: it delays the answer by a moment at most, and finds none where the key may not read."""
        names = self._asked.names[:MAX_NAMED]
        if not names or not self._engine.channel.ready:
            return found([])
        holders: dict[str, None] = {}
        missing = len(names)

        def done(value: Any, error: LeaseError | None, request: Request) -> None:
            nonlocal missing
            grants = value.get("grants", []) if isinstance(value, dict) else []
            holders.update((str(grant["holder"]), None) for grant in grants if isinstance(grant, dict) and grant.get("holder"))
            missing -= 1
            if missing == 0:
                found(list(holders)[:MAX_NAMED])

        for name in names:
            self._engine.channel.send(("LEASE.SHOW", name), done, kind="read", timeout=HOLDERS_TIMEOUT)

    def _fail_with_holders(self, waited: float, facts: dict[str, Any], holders: list[str]) -> None:
        why = f"it is held by {', '.join(holders)}" if holders else "it is still held, or other waiters come first"
        known = {**facts, "holder": holders[0], "holders": holders} if holders else facts
        self.future.set_exception(
            LeaseError("TIMEOUT", f"{', '.join(self._asked.names)} was not granted within {in_words(waited)}: {why}", known)
        )

    def stop(self, error: LeaseError | None) -> None:
        """Ends the wait; without an error, because the caller has gone. What was granted meanwhile is given back."""
        if self.over:
            return
        self._leave()
        if error is None:
            self.future.cancel()
        else:
            self.future.set_exception(error)

    def _leave(self) -> None:
        lease = self.lease
        self._leave_queue()
        self._end()
        if self._request is not None and self._engine.channel.withdraw(self._request):
            self._engine.introduced(self, None)
        if lease is not None:
            self._engine.give_back(lease, self._asked.ttl)

    def close(self) -> None:
        self.stop(closed_error())

    def _fail(self, error: LeaseError) -> None:
        self._leave_queue()
        self._end()
        self.future.set_exception(error)

    def _end(self) -> None:
        self.over = True
        if self._timer is not None:
            self._timer.cancel()
        self._engine.ended(self)
