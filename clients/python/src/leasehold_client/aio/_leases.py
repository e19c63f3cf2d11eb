"""Leases for asyncio."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from .._core import AcquireOptions, Core, Names
from .._duration import Duration
from .._errors import Held as Busy
from .._exclusive import runs_as_coroutine
from .._held import Held
from .._runner import Runner
from .._watching import Watching, watch_flow
from ._flow import outcome, run
from ._lease import Lease
from ._request import Request, in_hand

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .._cache import CacheLease
    from ._cache import Cache
    from ._election import Election
    from ._pool import Pool
    from ._registry import Registry
    from ._semaphore import Semaphore
    from ._session import Session
    from ._shards import Shards
    from ._slots import Slot

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class Leases:
    """As ``leasehold_client.Leases``: a connection to a server, and the leases of this process."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._registry: Registry | None = None

    @property
    def holder(self) -> str:
        """The name that others see."""
        return self._core.engine.options.holder

    @property
    def incarnation(self) -> int | None:
        """The number of this process under its holder's name: that of its first lease. Tells two processes of one name apart."""
        return self._core.engine.incarnation

    @property
    def stats(self) -> Mapping[str, int]:
        """Counters since the start: messages, connections, renewals; and the leases that are held now."""
        engine = self._core.engine
        return {**engine.channel.stats, **engine.renewals.stats, "leases": len(engine.renewals.held)}

    async def acquire(self, names: Names, **options: Unpack[AcquireOptions]) -> Lease:
        """All of the names, or none. Waits until granted, or for ``wait``; then raises ``TIMEOUT``. May be cancelled at any time."""
        return await in_hand(self._core, self._core.obtain(self._core.asked("acquire", names, options, True)))

    async def try_acquire(self, names: Names, **options: Unpack[AcquireOptions]) -> Lease | None:
        """``None`` when another holder has it. That is an answer, not an error."""
        granted: list[Held] = []
        try:
            return await run(self._core.try_obtain(self._core.asked("try_acquire", names, options, False), Lease, granted))
        except BaseException:
            self._core.abandon(granted)
            raise

    def request(self, names: Names, **options: Unpack[AcquireOptions]) -> Request:
        """``acquire`` for an ``async with`` block. Raises ``LeaseLost`` at its end when the lease was lost and the block was not told."""
        return Request(self._core, names, options)

    def exclusive(
        self, names: Names, **options: Unpack[AcquireOptions]
    ) -> Callable[[Callable[P, Coroutine[Any, Any, R]]], Callable[P, Coroutine[Any, Any, R]]]:
        """A decorator: the coroutine of an ``async def`` runs under the lease, one call at a time everywhere. All else is ``INVALID``."""

        def decorate(function: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R]]:
            runs_as_coroutine(
                function, "it is no coroutine function. Write async def, or decorate it with a client of leasehold_client.connect()"
            )

            @functools.wraps(function)
            async def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
                async with self.request(names, **options):
                    return await function(*args, **kwargs)

            return wrapper

        return decorate

    async def grant(self, **options: Unpack[AcquireOptions]) -> Lease:
        """A lease on no resource, for entries and for leases that belong to it."""
        return await in_hand(self._core, self._core.obtain(self._core.asked("grant", None, options, False)))

    async def adopt(self, lease: int, *, renew: str = "half", max_hold: Duration | None = None) -> Lease:
        """Takes over a lease that ``transfer`` passed on to the name of this holder, by the number that ``transfer`` returned."""
        return await in_hand(self._core, self._core.adopt(lease, renew, max_hold))

    async def _read(self, *words: str | int) -> Any:
        return await outcome(self._core.read(*words))

    async def show(self, resource: str) -> dict[str, Any]:
        """The holders and the waiters of a resource."""
        shown: dict[str, Any] = await self._read("LEASE.SHOW", resource)
        return shown

    async def entries(self, prefix: str = "") -> list[dict[str, Any]]:
        """The entries under a prefix, each with its lease and holder."""
        found: list[dict[str, Any]] = await self._read("LEASE.ENTRIES", *([prefix] if prefix else []))
        return found

    async def history(self, resource: str) -> list[dict[str, Any]]:
        """The last holders of a resource, and how each lease ended; the latest one is the last."""
        past: list[dict[str, Any]] = await self._read("LEASE.HISTORY", resource)
        return past

    async def recall(self, resource: str) -> None:
        """Asks the holders of a resource to release it: ``lease.recalled`` is set there."""
        await outcome(self._core.change("LEASE.RECALL", resource, "BY", self.holder))

    async def break_(self, resource: str, *, after: Duration | None = None) -> None:
        """Ends the leases that hold a resource, at most ``after`` from now: their holders are told at once and have that long to finish.

        A second break can only shorten it. The resource goes to the next waiter when its holder has stopped, or its term has run.

        >>> await leases.break_("deploy/prod", after="30s")
        """
        await outcome(self._core.break_(resource, after, self.holder))

    async def revoke(self, *, lease: int | None = None, holder: str | None = None, prefix: str | None = None, force: bool = False) -> None:
        """Ends leases of any holder: one of ``lease``, ``holder`` and ``prefix`` says which.

        Their resources stay frozen until the holders have stopped, or their terms have run. ``force`` does not wait for that.

        >>> await leases.revoke(prefix="jobs")
        """
        await outcome(self._core.revoke(lease, holder, prefix, force, self.holder))

    async def fence(self, resource: str, token: int) -> int:
        """Shows a token: the highest one so far, or ``STALE`` when a newer one was shown before."""
        future = self._core.do(lambda engine: engine.call("LEASE.FENCE", resource, token))
        highest: int = await outcome(future)
        return highest

    @asynccontextmanager
    async def watch(self, prefix: str) -> AsyncIterator[AsyncIterator[list[dict[str, Any]]]]:
        """Every event under a prefix, one list per revision. An event ``resync`` says that some were missed: read anew."""
        watching = await run(watch_flow(self._core, prefix))
        try:
            yield _events(watching)
        finally:
            watching.close()

    def semaphore(self, name: str, **options: Unpack[AcquireOptions]) -> Semaphore:
        """At most so many permits of one name in use at once, by all processes together.

        ``permits`` must be given. A grant keeps to the smallest number that the holders and the request state.

        >>> async with leases.semaphore("downloads", permits=3).request() as lease:
        ...     await fetch_all(lease)
        """
        from ._semaphore import Semaphore

        return Semaphore(self, name, options)

    def election(
        self, name: str, *, ttl: Duration = 10, priority: int = 0, budget: Duration | None = None, yields: bool = False
    ) -> Election:
        """One leader at a time. ``async for term in leases.election("scheduler").terms(): await lead(term)``."""
        from ._election import Election

        return Election(self, name, ttl=ttl, priority=priority, budget=budget, yields=yields)

    async def session(
        self,
        *,
        ttl: Duration = "20m",
        renew: str = "on-activity",
        labels: Mapping[str, str] | None = None,
        parent: Any = None,
        max_life: Duration | None = None,
    ) -> Session:
        """The presence of a user, an agent or a job. Leases, entries and sessions under it end with it."""
        from ..session import session_options
        from ._session import Session

        return Session(self, await self.grant(**session_options(ttl, renew, labels, parent, max_life)))

    async def slot(
        self, name: str, numbers: range, *, sticky: str | None = None, remember: Duration = "1d", **options: Unpack[AcquireOptions]
    ) -> Slot:
        """One number of a range for each holder, such as a port. Waits until one is free, or for ``wait``.

        ``sticky``: a name that stays the same over restarts, and gets the same number again if it is free. Without it, the lowest free
        number. ``remember``: how long after the last use.

        >>> async with await leases.slot("ports", range(3000, 3100), sticky="checkout-service") as slot:
        ...     server.listen(slot.number)
        """
        return await self._slot(name, numbers, sticky, remember, options, True)

    async def try_slot(
        self, name: str, numbers: range, *, sticky: str | None = None, remember: Duration = "1d", **options: Unpack[AcquireOptions]
    ) -> Slot | None:
        """As ``slot``, without waiting: ``None`` if no number is free."""
        try:
            return await self._slot(name, numbers, sticky, remember, options, False)
        except Busy:
            return None

    async def _slot(self, name: str, numbers: range, sticky: str | None, remember: Duration, options: AcquireOptions, waits: bool) -> Slot:
        from .._slots import take_slot
        from ._slots import Slot

        granted: list[Held] = []
        try:
            number = await run(take_slot(self._core, name, numbers, sticky, remember, options, waits, granted))
            return Slot(self._core, granted[0], number)
        except BaseException:
            self._core.abandon(granted)
            raise

    def cache(
        self,
        prefix: str,
        *,
        load: Callable[[str, CacheLease], Awaitable[T]],
        save: Callable[[str, T, CacheLease], Awaitable[object]] | None = None,
        ttl: Duration = "1m",
        most: int = 10_000,
    ) -> Cache[T]:
        """A cache that is never stale. ``load`` reads a value from its source, ``save`` writes it there for ``write``.

        ``ttl``: the term of a reader, by which a write waits for one that cannot be reached; ``"auto"`` chooses it from the rates of reads
        and writes. ``most``: how many values are kept; the least recently used one is dropped first.
        """
        from ._cache import Cache

        return Cache(self, prefix, load=load, save=save, ttl=ttl, most=most)

    def shards(self, name: str, *, count: int, ttl: Duration = "10s", budget: Duration | None = None, member: str | None = None) -> Shards:
        """A fixed number of parts of a work, spread evenly over the processes that join.

        ``ttl``: after a crash, the shards of a member are assigned to others this much later. ``budget``: how long the work on a shard may
        take to end; no limit by default. ``member``: its name, that of the holder by default.
        """
        from ._shards import Shards

        return Shards(self, name, count=count, ttl=ttl, budget=budget, member=member)

    def pool(self, name: str, *, match: Mapping[str, str] | None = None) -> Pool:
        """Members of which a caller takes as many as it needs: GPUs, licences, test machines."""
        from ._pool import Pool

        return Pool(self, name, match=match)

    @property
    def registry(self) -> Registry:
        """Registers and discovers instances of services."""
        from ._registry import Registry

        if self._registry is None:
            self._registry = Registry(self._core)
        return self._registry

    async def close(self) -> None:
        """Gives back every lease, withdraws every wait, and closes the connection. Takes a second at most when no server answers."""
        owner = self._core.owner
        if isinstance(owner, Runner):
            await asyncio.to_thread(owner.close)
            owner.leave_loop()
        else:
            owner.close()

    async def __aenter__(self) -> Leases:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()


async def _events(watching: Watching) -> AsyncIterator[list[dict[str, Any]]]:
    while (events := await outcome(watching.next())) is not None:
        yield events
