"""Shards, without regard to how their user works: a fixed number of parts of a work, spread evenly over the members that live.

Each shard is a lease (``shards/NAME/NUMBER``) that hangs on the lease of its member's presence. All members compute the same plan from the
same entries (``_shard_plan.py``); each acquires what the plan gives it and gives back what the plan gives to another. The leases keep two
members from having one shard, whatever they believe about the plan.

Promised: a shard is assigned to a member after the former owner's callbacks have returned, or its budget for that is spent, or its last
term has run. The token of a shard grows with each assignment. A member's death moves only its own shards.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Protocol

from ._channel import Request
from ._core import Core
from ._duration import Duration, seconds
from ._engine import Engine
from ._errors import LeaseError, closed_error
from ._flow import Ask, Flow
from ._future import Future
from ._held import Held
from ._random import unique_name
from ._request import AcquireRequest
from ._shard_plan import ShardMember, plan_shards
from ._timers import Timer

#: Every member computes the plan for all of them.
MAX_SHARDS = 4_096
#: Changes within this time are answered by one plan.
GATHER = 0.02
#: Pause before the next attempt after an error.
RETRY = 0.5
#: Errors that another attempt would meet again.
_FINAL = ("FORBIDDEN", "INVALID", "LIMIT", "STALE", "UNAUTHENTICATED", "UNSUPPORTED")

Done = Callable[["BaseException | None"], None]


class Callbacks(Protocol):
    """Runs the work of the user, and says when it has ended: from any thread, once."""

    def assigned(self, work: Work, done: Done) -> None: ...

    def revoked(self, work: Work, done: Done) -> None: ...


class Work:
    """The work on one shard, from its begin until both callbacks have returned. Used with the engine's lock held."""

    def __init__(self, membership: Membership, index: int, held: Held) -> None:
        self._membership = membership
        self.index = index
        self.held = held
        #: What the user's side has made of it.
        self.shard: Any = None
        self.stopped = False
        #: Given back by this member, rather than lost.
        self.released = False
        self._running = 0
        self._when_ended: list[Callable[[], object]] = []

    def begin(self) -> None:
        # What it raises when it was told to end is no failure.
        self._run(self._membership.callbacks.assigned, lambda: not self.stopped)

    def stop(self) -> None:
        if not self.stopped:
            self.stopped = True
            self._run(self._membership.callbacks.revoked, lambda: True)

    def _run(self, callback: Callable[[Work, Done], None], fails: Callable[[], bool]) -> None:
        self._running += 1
        engine, owner = self._membership.engine, self._membership.owner
        engine.later(functools.partial(callback, self, lambda error: owner.post(lambda engine: self._done(error, fails))))

    def _done(self, error: BaseException | None, fails: Callable[[], bool]) -> None:
        self._running -= 1
        if error is not None and fails():
            self._membership.fail(error)
        if self.stopped and self._running == 0:
            calls, self._when_ended = self._when_ended, []
            for call in calls:
                call()

    def when_ended(self, call: Callable[[], object]) -> None:
        if self.stopped and self._running == 0:
            call()
        else:
            self._when_ended.append(call)


class Membership:
    """One membership, from its presence lease to the end of that. Used with the engine's lock held."""

    def __init__(self, shards: ShardsCore, engine: Engine, callbacks: Callbacks) -> None:
        self._shards = shards
        self.engine = engine
        self.owner = shards.core.owner
        self.callbacks = callbacks
        self.id = unique_name()
        self._presence: Held | None = None
        self._waiting: dict[int, Future[Held]] = {}
        self.working: dict[int, Work] = {}
        self._timer: Timer | None = None
        self._reading = False
        self._again = False
        self.over = False
        self.failure: BaseException | None = None
        #: Done when everything is given back.
        self.done: Future[None] = Future()

    def begin(self) -> None:
        shards = self._shards
        key = f"{shards.prefix}/members/{self.id}"
        asked = shards.core.asked("join", None, {"ttl": shards.ttl, "entries": {key: shards.member}}, False)
        self.engine.closers.append(self._client_closed)
        self.engine.acquire(asked).add_done_callback(self._present)

    def _client_closed(self) -> list[Future[Any]]:
        self.end()
        self.done.set_result(None)
        return []

    def _present(self, future: Future[Held]) -> None:
        error = future.exception()
        if error is not None:
            if isinstance(error, LeaseError) and error.code in _FINAL:
                self.failure = error
            self.over = True
            return self._finish()
        held = self._presence = future.result()
        if self.over:
            return self._finish()
        held.reported = True
        held.when_over(self.end)
        begun = self.engine.watches.begin(self._shards.prefix, self._told)
        begun.add_done_callback(self._watch_begun)

    def _watch_begun(self, begun: Future[int]) -> None:
        error = begun.exception()
        if isinstance(error, LeaseError) and not self.over:
            self._refused(error)
        self._plan_after(0.0)

    def _told(self, events: list[dict[str, Any]]) -> None:
        kinds = {event.get("type") for event in events}
        if kinds & {"put", "deleted", "resync"}:
            self._plan_after(GATHER)
        elif "ended" in kinds:
            self._refused(LeaseError(str(events[0].get("code")), str(events[0].get("message"))))

    def _refused(self, error: LeaseError) -> None:
        if error.code in _FINAL:
            self.fail(error)
        else:
            self._plan_after(RETRY)

    def fail(self, error: BaseException) -> None:
        if self.failure is None:
            self.failure = error
        self.end()

    # The plan

    def _plan_after(self, pause: float) -> None:
        if self._timer is None and not self.over:
            self._timer = self.engine.timers.at(self.engine.clock.read().monotonic + pause, self._read)

    def _read(self) -> None:
        self._timer = None
        if self.over:
            return
        if self._reading:
            self._again = True
            return
        self._reading = True
        self.engine.channel.send(("LEASE.ENTRIES", self._shards.prefix), self._answered, kind="read")

    def _answered(self, value: Any, error: LeaseError | None, request: Request) -> None:
        again, self._reading, self._again = self._again, False, False
        if self.over:
            return
        if error is not None:
            return self._refused(error)
        self._follow(*self._shards.members_and_owners(value))
        if again:
            self._plan_after(GATHER)

    def _follow(self, members: list[ShardMember], owners: dict[int, str]) -> None:
        """Compares what this member has with what it should have."""
        plan = plan_shards(self._shards.count, members, owners)
        for index, future in list(self._waiting.items()):
            if plan[index] != self.id:
                del self._waiting[index]
                self.engine.cancel(future)
        for index, work in list(self.working.items()):
            if plan[index] != self.id and not work.stopped:
                self._give_back(work)
        for index, member in enumerate(plan):
            if member == self.id and index not in self._waiting and index not in self.working:
                self._take(index)

    def _take(self, index: int) -> None:
        future = self.engine.acquire(self._shards.request(index, self.id, self._presence))
        self._waiting[index] = future
        future.add_done_callback(functools.partial(self._taken, index))

    def _taken(self, index: int, future: Future[Held]) -> None:
        if self._waiting.get(index) is not future:
            return  # called off: what is granted is given back
        del self._waiting[index]
        error = future.exception()
        if error is not None:
            if isinstance(error, LeaseError) and not self.over:
                self._refused(error)
            return
        held = future.result()
        work = self.working[index] = Work(self, index, held)
        held.reported = True
        # The shard stays frozen until the work on it has ended, or its last term has run.
        held.until_stopped = work.when_ended
        work.begin()
        held.when_over(functools.partial(self._lost, work))

    def _lost(self, work: Work) -> None:
        if work.released:
            return
        work.stop()
        work.when_ended(functools.partial(self._ended, work))

    def _give_back(self, work: Work) -> None:
        """Ends the work on a shard, within the budget, and releases it."""
        work.stop()
        timer: Timer | None = None
        if self._shards.budget is not None:
            moment = self.engine.clock.read().monotonic + self._shards.budget
            timer = self.engine.timers.at(moment, functools.partial(self._released, work))

        def ended() -> None:
            if timer is not None:
                timer.cancel()
            self._released(work)

        work.when_ended(ended)

    def _released(self, work: Work) -> None:
        if work.held.reason is not None:
            return self._ended(work)
        work.released = True
        # Answered or not: an undelivered release lapses by itself.
        self.engine.release(work.held).add_done_callback(lambda released: self._ended(work))

    def _ended(self, work: Work) -> None:
        if self.working.get(work.index) is work:
            del self.working[work.index]
        if self.over and not self.working:
            self._finish()
        self._plan_after(GATHER)

    # The end

    def end(self) -> None:
        """First from the list of members: the others plan for the shards before these are given back."""
        if self.over:
            return
        self.over = True
        if self._timer is not None:
            self._timer.cancel()
        presence = self._presence
        if presence is None:
            return  # its answer is under way
        self.engine.watches.end(self._shards.prefix, self._told)
        if presence.reason is None:
            self.engine.change("LEASE.DEL", f"{self._shards.prefix}/members/{self.id}", "LEASE", presence.id)
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            self.engine.cancel(future)
        for work in list(self.working.values()):
            self._give_back(work)
        if not self.working:
            self._finish()

    def _finish(self) -> None:
        if self._client_closed in self.engine.closers:
            self.engine.closers.remove(self._client_closed)
        if self._presence is None:
            self.done.set_result(None)
        else:
            self.engine.release(self._presence).add_done_callback(lambda released: self.done.set_result(None))


class ShardsCore:
    """What the sync and asyncio forms of shards share."""

    def __init__(self, core: Core, name: str, count: int, ttl: Duration, budget: Duration | None, member: str | None) -> None:
        if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= MAX_SHARDS:
            raise LeaseError("INVALID", f"count must be a whole number from 1 to {MAX_SHARDS}, not {count!r}", {"option": "count"})
        self.core = core
        self.prefix = f"shards/{name}"
        self.count = count
        self.ttl = seconds(ttl, "ttl")
        self.budget = None if budget is None else seconds(budget, "budget")
        self.member = core.engine.options.holder if member is None else member
        self.memberships: list[Membership] = []
        self._stopped = False

    def request(self, index: int, member: str, presence: Held | None) -> AcquireRequest:
        options = {"ttl": self.ttl, "entries": {f"{self.prefix}/owners/{index}/{member}": ""}}
        return self.core.asked("join", f"{self.prefix}/{index}", options, True)._replace(parent=presence, holding=())

    def members_and_owners(self, entries: Any) -> tuple[list[ShardMember], dict[int, str]]:
        """Entries of other forms are ignored."""
        members: list[ShardMember] = []
        owners: dict[int, str] = {}
        for entry in entries if isinstance(entries, list) else []:
            parts = entry["key"][len(self.prefix) + 1 :].split("/")
            if parts[0] == "members" and len(parts) == 2:
                members.append(ShardMember(parts[1], entry["value"]))
            elif parts[0] == "owners" and len(parts) == 3 and len(parts[1]) <= 4 and parts[1].isascii() and parts[1].isdigit():
                owners[int(parts[1])] = parts[2]
        return members, owners

    def owners(self) -> Flow[list[str | None]]:
        """The name of the member that has each shard, by index."""
        members, owners = self.members_and_owners((yield self.core.read("LEASE.ENTRIES", self.prefix)))
        names = {member.id: member.name for member in members}
        return [names.get(owners.get(index, "")) for index in range(self.count)]

    def owned(self) -> list[Work]:
        found = [work for membership in list(self.memberships) for work in list(membership.working.values()) if not work.stopped]
        return sorted(found, key=lambda work: work.index)

    def join(self, callbacks: Callbacks) -> Flow[None]:
        """Until ``stop``, an interrupt or a cancellation. A membership that was lost begins again."""
        while not self._stopped:
            begun: list[Membership] = []

            def begin(engine: Engine, begun: list[Membership] = begun) -> Future[None]:
                membership = Membership(self, engine, callbacks)
                begun.append(membership)
                self.memberships.append(membership)
                membership.begin()
                return self._end_of(membership)

            try:
                yield Ask(self.core.owner, begin)
            except BaseException:
                if begun:
                    self.core.owner.post(lambda engine, begun=begun: begun[0].end())  # type: ignore[misc]
                    yield self._end_of(begun[0])
                raise
            finally:
                if begun:
                    self.memberships.remove(begun[0])
            if begun[0].failure is not None:
                raise begun[0].failure
            if self.core.engine.closed:
                raise closed_error()
            if not self._stopped:
                yield self.core.sleep(RETRY)

    def _end_of(self, membership: Membership) -> Future[None]:
        """A future of its own for each that waits: one that is cancelled leaves the others alone."""
        mine: Future[None] = Future()
        membership.done.add_done_callback(lambda done: mine.set_result(None))
        return mine

    def stop(self) -> None:
        self._stopped = True
        for membership in list(self.memberships):
            self.core.owner.post(lambda engine, membership=membership: membership.end())  # type: ignore[misc]
