"""A registration in the engine: a lease that carries the description of an instance, renewed while this process lives.

It excludes no other client, so it is not given up when renewals stay unanswered: they are repeated until one is answered. If the
lease has lapsed meanwhile, the instance registers again, after a random pause, so that those that fell together do not return together.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ._channel import Request
from ._engine import Engine
from ._entry import Instance, InstanceState, state_value
from ._errors import LeaseError
from ._future import Future
from ._random import fraction
from ._timers import Timer

#: Renewals in one command, and pauses between tries.
MAX_BATCH = 10_000
FIRST_RETRY, LAST_RETRY = 0.25, 5.0
#: Registrations that lapsed together return within this time, or a third of their ttl if that is shorter.
SPREAD = 10.0
#: A load is written at most this often.
LOAD_INTERVAL = 1.0
_FINAL = ("HELD", "STALE", "FORBIDDEN", "INVALID", "UNAUTHENTICATED")


class Registered:
    """One or more instances on one lease: they are renewed together, and end together. Used with the engine's lock held."""

    def __init__(
        self, engine: Engine, instances: list[tuple[Instance, InstanceState]], ttl: float, grace: float, heartbeat: float | None = None
    ) -> None:
        self._engine = engine
        self.instances = instances
        self.ttl = ttl
        self.grace = grace
        #: Seconds between renewals; None: a third of the term.
        self.heartbeat = heartbeat
        self.lease = 0
        self.reason: LeaseError | None = None
        self.made: Future[None] = Future()
        self.on_event: Callable[[str, LeaseError | None], None] | None = None
        self.on_end: Callable[[], None] | None = None
        self.next_renewal = 0.0
        self.busy = False
        #: Tells the registrar that ``next_renewal`` has changed.
        self.replan: Callable[[float], None] = lambda moment: None
        self._unreachable = False
        self._failures = 0
        self._written: dict[str, str] = {}
        self._load_at = float("-inf")
        self._load_timer: Timer | None = None
        self._retry_until = 0.0

    @property
    def over(self) -> bool:
        return self.reason is not None

    def _entries(self) -> dict[str, str]:
        entries = {}
        for instance, state in self.instances:
            entries[instance.key] = instance.value
            if state != InstanceState() or f"{instance.key}/state" in self._written:
                entries[f"{instance.key}/state"] = state_value(state)
        return entries

    @property
    def name(self) -> str:
        return ", ".join(instance.name for instance, _ in self.instances)

    def _generation_of(self, key: str) -> int:
        return next((instance.generation for instance, _ in self.instances if key in (instance.key, f"{instance.key}/state")), 0)

    # Registering

    def register(self, wait: float) -> None:
        self._retry_until = self._engine.clock.read().monotonic + wait
        self.acquire()

    def acquire(self) -> None:
        engine, entries = self._engine, self._entries()
        words: list[str | int] = ["LEASE.GRANT", "TTL", round(self.ttl * 1000), "HOLDER", engine.options.holder]
        words += ["GRACE", round(self.grace * 1000)]
        if engine.incarnation is not None:
            words += ["INCARNATION", engine.incarnation]
        for key, value in entries.items():
            words += ["ENTRY", key, value]
            if self._generation_of(key) > 0:
                words += ["GENERATION", self._generation_of(key)]
        words += ["OP", engine.operation()]
        self.busy = True
        request = engine.channel.send(tuple(words), functools.partial(self._acquired, entries), timeout=max(10.0, self.ttl))
        request.late = lambda value, request: self._unwanted(value)

    def _unwanted(self, value: Any) -> None:
        if isinstance(value, dict) and isinstance(value.get("lease"), int):
            self._engine.give_back(value["lease"], self.ttl)

    def _acquired(self, entries: dict[str, str], value: Any, error: LeaseError | None, request: Request) -> None:
        self.busy = False
        if error is None and not (isinstance(value, dict) and isinstance(value.get("lease"), int)):
            error = LeaseError("UNKNOWN", "the server answered something else than a lease")
        if error is not None:
            return self._refused(error)
        if self.over:
            return self._unwanted(value)
        again = self.made.done()
        self.lease = value["lease"]
        if self._engine.incarnation is None:
            self._engine.incarnation = self.lease
        self._written = dict(entries)
        self.renewed(request.sent_at.monotonic, int(value.get("ttl", 0)) / 1000 or self.ttl)
        if again:
            self._tell("registered")
        elif not self.made.set_result(None):
            self.end(LeaseError("GONE", f"{self.name} was not registered: its caller has gone"))
            return
        self._write_changes()

    def _refused(self, error: LeaseError) -> None:
        now = self._engine.clock.read().monotonic
        if self.over:
            return
        if not self.made.done():
            if error.code == "HELD" and now < self._retry_until:
                pause = min(self._retry_until - now, LAST_RETRY, FIRST_RETRY * 2 ** min(self._failures, 10))
                self._failures += 1
                self._engine.timers.at(now + pause, lambda: None if self.over else self.acquire())
                return
            self.reason = error
            self.made.set_exception(error)
            return
        # Another holder has the name, or the key is refused. Trying again would only compete with the successor.
        if error.code in _FINAL:
            self.end(error)
        else:
            self.missed()

    # Renewing

    def renewed(self, sent: float, term: float) -> None:
        self._failures = 0
        interval = term / 3 if self.heartbeat is None else min(self.heartbeat, term / 2)
        self.next_renewal = sent + interval * (0.9 + fraction() / 10)
        self.replan(self.next_renewal)
        if self._unreachable:
            self._tell("reached")
        self._unreachable = False

    def missed(self) -> None:
        if not self._unreachable:
            self._tell("unreachable")
        self._unreachable = True
        longest = min(LAST_RETRY, self.ttl / 4)
        pause = min(longest, FIRST_RETRY * 2 ** min(self._failures, 10)) * (0.5 + fraction() / 2)
        self._failures += 1
        self.next_renewal = self._engine.clock.read().monotonic + pause
        self.replan(self.next_renewal)

    def lapsed(self) -> None:
        if self.lease == 0 or self.over:
            return
        self._tell("lapsed")
        self.lease = 0
        self._unreachable = False
        self._failures = 0
        spread = min(SPREAD, self.ttl / 3) * fraction()
        self.next_renewal = self._engine.clock.read().monotonic + spread
        self.replan(self.next_renewal)

    def _tell(self, event: str, reason: LeaseError | None = None) -> None:
        if self.on_event is not None:
            self._engine.later(functools.partial(self.on_event, event, reason))

    # Changing

    def update(self, instances: list[tuple[Instance, InstanceState]]) -> Future[None]:
        """Resolves when the change is in the log, or will be with the next registration."""
        both = zip(instances, self.instances, strict=True)
        load_only = all(new == old and state.status == former.status for (new, state), (old, former) in both)
        self.instances = instances
        now = self._engine.clock.read().monotonic
        if load_only and now < self._load_at + LOAD_INTERVAL:
            if self._load_timer is None:
                self._load_timer = self._engine.timers.at(self._load_at + LOAD_INTERVAL, self._write_load)
            done: Future[None] = Future()
            done.set_result(None)
            return done
        if load_only:
            self._load_at = now
        return self._write_changes()

    def _write_load(self) -> None:
        self._load_timer = None
        self._load_at = self._engine.clock.read().monotonic
        self._write_changes()

    def _write_changes(self) -> Future[None]:
        future: Future[None] = Future()
        changed = {key: value for key, value in self._entries().items() if self._written.get(key) != value}
        if self.lease == 0 or not changed:
            future.set_result(None)
            return future
        waiting = set(changed)

        def done(key: str, value: Any, error: LeaseError | None, request: Request) -> None:
            waiting.discard(key)
            if error is not None:
                self._written.pop(key, None)
                if error.code == "GONE":
                    self.lapsed()
                else:
                    future.set_exception(error)
            if not waiting:
                future.set_result(None)

        for key, value in changed.items():
            self._written[key] = value
            words: tuple[str | int, ...] = ("LEASE.PUT", self.lease, key, value)
            if self._generation_of(key) > 0:
                words += ("GENERATION", self._generation_of(key))
            self._engine.channel.send((*words, "OP", self._engine.operation()), functools.partial(done, key))
        return future

    # Ending

    def end(self, reason: LeaseError) -> Future[None]:
        """Ends it for good. Resolves when the server knows."""
        lease, self.lease = self.lease, 0
        if self.reason is None:
            self.reason = reason
            self._tell("ended", reason)
            if self.on_end is not None:
                self.on_end()
        if lease != 0:
            return self._engine.give_back(lease, self.ttl)
        done: Future[None] = Future()
        done.set_result(None)
        return done


class Registrar:
    """Renews all registrations of a process together, and registers those again that lapsed."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._registered: dict[Registered, None] = {}
        self._timer: Timer | None = None

    def register(self, registered: Registered, wait: float) -> Future[None]:
        self._registered[registered] = None
        registered.replan = self._arm
        registered.register(wait)
        registered.made.add_done_callback(lambda made: self._forget(registered) if registered.over else None)
        return registered.made

    def _forget(self, registered: Registered) -> None:
        self._registered.pop(registered, None)

    def all(self) -> list[Registered]:
        return list(self._registered)

    def _plan(self) -> None:
        for each in [each for each in self._registered if each.over]:
            del self._registered[each]
        due = min((each.next_renewal for each in self._registered if each.made.done() and not each.busy), default=None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if due is not None:
            self._timer = self._engine.timers.at(due, self._renew_due)

    def _arm(self, moment: float) -> None:
        if self._timer is not None:
            if self._timer.moment <= moment:
                return
            self._timer.cancel()
        self._timer = self._engine.timers.at(moment, self._renew_due)

    def _renew_due(self) -> None:
        self._timer = None
        now = self._engine.clock.read().monotonic
        renewing = []
        for each in list(self._registered):
            if each.busy or each.over or not each.made.done():
                continue
            # What is due soon goes along. Returns stay spread out.
            if each.next_renewal - (0.1 if each.lease == 0 else each.ttl / 8) > now:
                continue
            if each.lease == 0:
                each.next_renewal = now + each.ttl
                each.acquire()
            else:
                each.busy = True
                renewing.append(each)
        for start in range(0, len(renewing), MAX_BATCH):
            self._renew(renewing[start : start + MAX_BATCH])
        self._plan()

    def _renew(self, group: list[Registered]) -> None:
        leases = [each.lease for each in group]

        def done(value: Any, error: LeaseError | None, request: Request) -> None:
            terms = value if error is None and isinstance(value, list) and len(value) == len(group) else [None] * len(group)
            for each, lease, term in zip(group, leases, terms, strict=True):
                each.busy = False
                if each.over:
                    continue
                if each.lease != lease:  # it lapsed meanwhile, and returns as planned then
                    each.replan(each.next_renewal)
                elif not isinstance(term, int):
                    each.missed()
                elif term > 0:
                    each.renewed(request.sent_at.monotonic, term / 1000)
                else:
                    each.lapsed()

        # Short enough for several tries within the ttl: one lost message must not end a registration.
        timeout = min(LAST_RETRY, min(each.ttl for each in group) / 6)
        self._engine.channel.send(("LEASE.RENEW", *leases), done, kind="renew", timeout=timeout)
