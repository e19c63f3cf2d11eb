"""Shards for threads: parts of a work, spread evenly over the processes that live."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from ._duration import Duration
from ._flow import run
from ._shards import Done, ShardsCore, Work
from ._sync import Lease

if TYPE_CHECKING:
    from ._sync import Leases

__all__ = ["Shard", "Shards"]


class Shard:
    """A shard in the hands of this member."""

    def __init__(self, index: int, lease: Lease) -> None:
        #: From 0 to ``count`` - 1.
        self.index = index
        self.lease = lease
        #: Set when the work on the shard must end: it is assigned to another member, or lost.
        self.ended = threading.Event()

    @property
    def token(self) -> int:
        """The epoch of this assignment, greater than that of every earlier one."""
        return self.lease.token

    @property
    def held(self) -> bool:
        """Whether the shard is this member's. Asks the clocks."""
        return self.lease.held


class _Threads:
    """Runs each callback on a thread of its own: the work on a shard may last as long as it is assigned."""

    def __init__(self, shards: Shards, on_assigned: Callable[[Shard], object], on_revoked: Callable[[Shard], object] | None) -> None:
        self._core = shards._shards.core
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked

    def assigned(self, work: Work, done: Done) -> None:
        shard = work.shard = Shard(work.index, Lease(self._core, work.held))
        if work.stopped:
            shard.ended.set()
        self._run(self._on_assigned, shard, done)

    def revoked(self, work: Work, done: Done) -> None:
        work.shard.ended.set()
        if self._on_revoked is None:
            done(None)
        else:
            self._run(self._on_revoked, work.shard, done)

    def _run(self, callback: Callable[[Shard], object], shard: Shard, done: Done) -> None:
        def call() -> None:
            error: BaseException | None = None
            try:
                callback(shard)
            except BaseException as raised:
                error = raised
            done(error)

        threading.Thread(target=call, name=f"leasehold-shard-{shard.index}", daemon=True).start()


class Shards:
    """Get them from ``leases.shards(name, count=…)``.

    >>> orders = leases.shards("orders", count=64, budget="30s")
    >>> orders.join(lambda shard: consume(shard.index, shard.token, shard.ended))
    """

    def __init__(
        self, leases: Leases, name: str, *, count: int, ttl: Duration = "10s", budget: Duration | None = None, member: str | None = None
    ) -> None:
        self._shards = ShardsCore(leases._core, name, count, ttl, budget, member)

    def join(self, on_assigned: Callable[[Shard], object], on_revoked: Callable[[Shard], object] | None = None) -> None:
        """Becomes a member until ``stop`` is called from another thread, then gives everything back.

        ``on_assigned`` begins the work on a shard, on a thread of its own; it may last until ``shard.ended`` is set. ``on_revoked`` ends
        it. The shard is given back when both have returned, or the budget is spent. What they raise ends the membership, and is raised
        here.
        """
        run(self._shards.join(_Threads(self, on_assigned, on_revoked)), self._shards.core.owner.wait)

    def stop(self) -> None:
        """Ends the membership, from any thread: the work is told to end, and ``join`` returns when everything is given back."""
        self._shards.stop()

    @property
    def owned(self) -> list[Shard]:
        """The shards that this process has now, lowest first."""
        return [work.shard for work in self._shards.owned() if work.shard is not None]

    def owners(self) -> list[str | None]:
        """The name of the member that has each shard, by index; ``None`` where none has it."""
        return run(self._shards.owners(), self._shards.core.owner.wait)
