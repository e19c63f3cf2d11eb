"""The leases in hand: renews them in batches, and ends those whose time is over.

Leases of one term and strategy form a group that is renewed by one message, so ten thousand leases cost one timer and one request per half
term. Each lease has one timer for its deadline, which is set again only when it fires.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ._channel import Channel, Request
from ._clock import Clock, Reading
from ._duration import in_words
from ._errors import LeaseError
from ._held import ClockWatch, Held
from ._random import fraction
from ._request import INTERVALS
from ._timers import Timer, Timers

if TYPE_CHECKING:
    from ._engine import Engine

#: Ids in one LEASE.RENEW.
MAX_RENEWALS = 10_000
SHORTEST_RETRY = 0.02
#: How long to ask why the server has ended a lease.
WHY_TIMEOUT = 0.25
#: How many stalls are remembered.
MAX_STALLS = 16
#: Causes of a loss that the server learns from the holder (``LEASE.RELEASE id LOST cause``).
LOSS_CAUSES = frozenset(("unreachable", "stall", "suspend", "inactive", "max-hold"))


class Group:
    __slots__ = ("failures", "interval", "members", "strategy", "term", "timer")

    def __init__(self, strategy: str, term: float) -> None:
        self.strategy = strategy
        self.term = term
        self.interval = INTERVALS[strategy] * term
        self.members: dict[Held, None] = {}
        self.timer: Timer | None = None
        self.failures = 0


class Renewals:
    """See the module's comment."""

    def __init__(self, engine: Engine, clock: Clock, timers: Timers, channel: Channel, watch: ClockWatch, clock_error: float) -> None:
        self._engine = engine
        self._clock = clock
        self._timers = timers
        self._channel = channel
        self._watch = watch
        self._clock_error = clock_error
        self._groups: dict[tuple[str, float], Group] = {}
        self.held: dict[int, Held] = {}
        self._deadlines: dict[Held, Timer] = {}
        # When each stall ended, and how long it lasted. A stall is forgotten when a longer one follows: the first is the longest.
        self._stalls: list[tuple[float, float]] = []
        self.stats = {"renewals": 0}

    def shortest_term(self) -> float | None:
        return min((group.term for group in self._groups.values()), default=None)

    # Validity

    def believe(self, held: Held, request: Request, term: float) -> bool:
        """An answer to ``request`` gives the lease ``term``. False: it came too late, or an answer to a later request came before."""
        if held.reason is not None or held.ending:
            return False
        if held.over:
            # A caller was told that it is over: no answer brings it back.
            self.expire(held)
            return False
        if request.number <= held.number:
            return True
        held.extend(request.sent_at, request.number, term, self._clock_error)
        if held.deadline.passed(self._clock.read()):
            self.expire(held)
            return False
        self.held[held.id] = held
        group = held.group
        if group is None or group.term != term:
            self._join(held)
        if held not in self._deadlines:
            self._deadlines[held] = self._timers.at(held.deadline.monotonic, functools.partial(self._look, held))
        return True

    def _join(self, held: Held) -> None:
        self._leave(held)
        key = (held.strategy, held.term)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = Group(held.strategy, held.term)
        group.members[held] = None
        held.group = group
        # Up to a tenth earlier, so that processes that were started together do not renew together for ever.
        self._plan(group, held.renewed.monotonic + group.interval * (1 - fraction() / 10))

    def _leave(self, held: Held) -> None:
        group: Group | None = held.group
        if group is None:
            return
        held.group = None
        group.members.pop(held, None)
        if group.members:
            return
        if group.timer is not None:
            group.timer.cancel()
        self._groups.pop((group.strategy, group.term), None)

    def _look(self, held: Held) -> None:
        """The timer of a deadline, which may have moved since."""
        self._deadlines.pop(held, None)
        if held.reason is not None or held.ending:
            return
        if held.over or held.deadline.passed(self._clock.read()):
            self.expire(held)
        else:
            self._deadlines[held] = self._timers.at(held.deadline.monotonic, functools.partial(self._look, held))

    def expire(self, held: Held) -> None:
        """The clocks say that it is over."""
        if held.reason is None:
            held.over = True
            # Overdue timers may not have fired yet, so the stall may not be noted yet.
            now, due = self._clock.read(), self._timers.next()
            if due is not None:
                self.note_stall(now.monotonic - due, now)
            stall = next((late for at, late in self._stalls if at > held.renewed.monotonic), 0.0)
            self.lose(held, held.expired(stall, unanswered=held.renewing))

    def check_all(self) -> None:
        """After a suspend, which the timers do not see: ends what is over, and renews the rest."""
        now = self._clock.read()
        for held in list(self.held.values()):
            if held.deadline.passed(now):
                self.expire(held)
        self.renew_all()

    def limit(self, held: Held, max_hold: float) -> None:
        """Ends it after ``max_hold``, whatever its work is doing: like a timeout of a job."""
        text = f"it was held for {in_words(max_hold)}, the limit set by max_hold"
        end = functools.partial(self.lose, held, held.lost("max-hold", text, max_hold))
        self._timers.at(self._clock.read().monotonic + max_hold, end)

    # Renewing

    def _plan(self, group: Group, moment: float) -> None:
        if group.timer is not None:
            if group.timer.call is not None and group.timer.moment <= moment:
                return
            group.timer.cancel()
        group.timer = self._timers.at(moment, functools.partial(self._renew_group, group))

    def _renew_group(self, group: Group) -> None:
        if not group.members:
            return
        now = self._clock.read()
        due: list[Held] = list(group.members)
        if group.strategy == "on-activity":
            due = [held for held in due if held.touched]
            for held in due:
                held.touched = False
        # Without an answer, again after a third of what is left.
        left = max((held.deadline.until(now) for held in due[:1]), default=group.interval)
        self._plan(group, now.monotonic + min(group.interval, max(SHORTEST_RETRY, left / 3)))
        if due and self._channel.ready:
            self._send(due)
        elif group.strategy == "on-activity":
            for held in due:
                held.touched = True

    def renew_all(self, inactive: bool = False) -> None:
        """After a reconnect or a jump of the clock: everything, at once. ``inactive``: also what only activity renews."""
        if self._channel.ready:
            self._send([held for held in self.held.values() if inactive or held.strategy != "on-activity" or held.touched])

    def _send(self, leases: list[Held]) -> None:
        for start in range(0, len(leases), MAX_RENEWALS):
            batch = leases[start : start + MAX_RENEWALS]
            for held in batch:
                held.renewing = True
            self.stats["renewals"] += len(batch)
            timeout = max(SHORTEST_RETRY, min(held.term for held in batch) / 2)
            request = self._channel.send(
                ("LEASE.RENEW", *(held.id for held in batch)), functools.partial(self._answered, batch), kind="renew", timeout=timeout
            )
            # Late is better than never: it counts from when it was sent.
            request.late = functools.partial(self._answered_late, batch)

    def _answered(self, batch: list[Held], value: Any, error: LeaseError | None, request: Request) -> None:
        terms = value if error is None and isinstance(value, list) and len(value) == len(batch) else None
        if terms is None:
            self._unanswered(batch)
            return
        groups = set()
        for held, term in zip(batch, terms, strict=True):
            held.renewing = False
            if not isinstance(term, int) or term < 0:
                self.gone(held)
            elif self.believe(held, request, term / 1000) and held.group is not None:
                groups.add(held.group)
        jitter = 1 - fraction() / 10
        for group in groups:
            group.failures = 0
            if group.timer is not None:
                group.timer.cancel()
            self._plan(group, max(self._clock.read().monotonic, request.sent_at.monotonic + group.interval * jitter))

    def _answered_late(self, batch: list[Held], value: Any, request: Request) -> None:
        self._answered(batch, value, None, request)

    def _unanswered(self, batch: list[Held]) -> None:
        now = self._clock.read()
        groups = {held.group for held in batch if held.group is not None}
        for held in batch:
            held.renewing = False
            if held.strategy == "on-activity":
                held.touched = True
        for group in groups:
            first = next(iter(group.members))
            left = max(0.0, first.deadline.until(now))
            pause = min(1.0, SHORTEST_RETRY * 2 ** min(group.failures, 10), max(SHORTEST_RETRY, left / 3))
            group.failures += 1
            self._plan(group, now.monotonic + pause)

    # Ending

    def gone(self, held: Held) -> None:
        """The server says that the lease has ended. It is not held from here on, and there is a moment to ask why."""
        if held.reason is not None or held.ending:
            return
        left = held.deadline.until(self._clock.read())
        if left <= 0:
            self.expire(held)  # it was over here before the server said so: report why it was not renewed in time
            return
        held.ending = True
        self._leave(held)
        if not held.resources:
            self._lose_to_server(held, "ended", "")
            return

        def done(value: Any, error: LeaseError | None, request: Request) -> None:
            past = next((p for p in value if isinstance(p, dict) and p.get("lease") == held.id), {}) if isinstance(value, list) else {}
            self._lose_to_server(held, str(past.get("cause") or "ended"), str(past.get("by") or ""))

        self._channel.send(("LEASE.HISTORY", held.resources[0]), done, kind="read", timeout=min(WHY_TIMEOUT, left))

    def _lose_to_server(self, held: Held, cause: str, by: str) -> None:
        who = "" if not by else f" to {by}" if cause == "transferred" else f" by {by}"
        self.lose(held, held.lost(cause, f"the lessor has ended it: {cause}{who}", by=by), definite=cause == "lapsed")

    def lose(self, held: Held, reason: LeaseError, definite: bool = False) -> None:
        """Ends it for good. ``definite``: the server has nothing left to release."""
        if held.reason is not None:
            return
        self._end(held, reason)
        for child in list(held.children or ()):
            self.lose_with_parent(child)
        # Queued renewals must not keep a lost lease alive, and frozen units become free when their holder says that it has stopped.
        cause = reason.facts.get("cause")
        lost = cause if cause in LOSS_CAUSES else None
        release: Callable[[], Any] | None = None if definite else functools.partial(self._engine.give_back, held.id, held.term, lost)
        self._engine.tell(held, release)

    def lose_with_parent(self, child: Held) -> None:
        parent = child.parent
        assert parent is not None
        self.lose(child, child.lost("parent", f"its parent, {parent.name}, has ended", by=str(parent.id)))

    def end(self, held: Held, how: str) -> None:
        """Its holder has stopped. What hangs on it ends first."""
        for child in list(held.children or ()):
            self.lose_with_parent(child)
        self._end(held, LeaseError("GONE", f"{held.name} was {how}", held.facts))
        self._engine.tell(held, None)

    def _end(self, held: Held, reason: LeaseError) -> None:
        held.reason = reason
        self.held.pop(held.id, None)
        self._leave(held)
        timer = self._deadlines.pop(held, None)
        if timer is not None:
            timer.cancel()
        if held.notices is not None:
            held.notices.end()
        if held.parent is not None and held.parent.children is not None:
            held.parent.children.discard(held)

    def note_stall(self, late: float, now: Reading) -> None:
        if late > 0.01:
            while self._stalls and self._stalls[-1][1] <= late:
                self._stalls.pop()
            self._stalls = [*self._stalls[-MAX_STALLS + 1 :], (now.monotonic, late)]
