"""Shards for asyncio."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from .._duration import Duration
from .._shards import Done, ShardsCore, Work
from ._flow import run
from ._lease import Lease

if TYPE_CHECKING:
    from ._leases import Leases


class Shard:
    """As ``leasehold_client.shards.Shard``."""

    def __init__(self, index: int, lease: Lease) -> None:
        #: From 0 to ``count`` - 1.
        self.index = index
        self.lease = lease
        #: Set when the work on the shard must end: it is assigned to another member, or lost.
        self.ended = asyncio.Event()

    @property
    def token(self) -> int:
        """The epoch of this assignment, greater than that of every earlier one."""
        return self.lease.token

    @property
    def held(self) -> bool:
        """Whether the shard is this member's. Asks the clocks."""
        return self.lease.held


class _Tasks:
    """Runs each callback as a task of the loop that has joined."""

    def __init__(self, shards: Shards, on_assigned: Callable[[Shard], Awaitable[object]], on_revoked: object) -> None:
        self._core = shards._shards.core
        self._loop = asyncio.get_running_loop()
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._tasks: set[asyncio.Task[None]] = set()

    def assigned(self, work: Work, done: Done) -> None:
        def begin() -> None:
            shard = work.shard = Shard(work.index, Lease(self._core, work.held))
            self._run(self._on_assigned, shard, done)

        self._in_loop(begin)

    def revoked(self, work: Work, done: Done) -> None:
        def end() -> None:
            work.shard.ended.set()
            if callable(self._on_revoked):
                self._run(self._on_revoked, work.shard, done)
            else:
                done(None)

        self._in_loop(end)

    def _in_loop(self, call: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nothing works there any more
            self._loop.call_soon_threadsafe(call)

    def _run(self, callback: Callable[[Shard], Awaitable[object]], shard: Shard, done: Done) -> None:
        async def call() -> None:
            error: BaseException | None = None
            try:
                await callback(shard)
            except BaseException as raised:
                error = raised
            done(error)

        task = self._loop.create_task(call())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class Shards:
    """As ``leasehold_client.shards.Shards``; the callbacks are coroutine functions, and run as tasks.

    >>> orders = leases.shards("orders", count=64, budget="30s")
    >>> await orders.join(consume)  # async def consume(shard): … until shard.ended is set
    """

    def __init__(
        self, leases: Leases, name: str, *, count: int, ttl: Duration = "10s", budget: Duration | None = None, member: str | None = None
    ) -> None:
        self._shards = ShardsCore(leases._core, name, count, ttl, budget, member)

    async def join(
        self, on_assigned: Callable[[Shard], Awaitable[object]], on_revoked: Callable[[Shard], Awaitable[object]] | None = None
    ) -> None:
        """Becomes a member until ``stop`` is called or the task is cancelled, then gives everything back.

        ``on_assigned`` begins the work on a shard; it may last until ``shard.ended`` is set. ``on_revoked`` ends it. The shard is given
        back when both have returned, or the budget is spent. What they raise ends the membership, and is raised here.
        """
        await run(self._shards.join(_Tasks(self, on_assigned, on_revoked)))

    def stop(self) -> None:
        """Ends the membership: the work is told to end, and ``join`` returns when everything is given back."""
        self._shards.stop()

    @property
    def owned(self) -> list[Shard]:
        """The shards that this process has now, lowest first."""
        return [work.shard for work in self._shards.owned() if work.shard is not None]

    async def owners(self) -> list[str | None]:
        """The name of the member that has each shard, by index; ``None`` where none has it."""
        return await run(self._shards.owners())
