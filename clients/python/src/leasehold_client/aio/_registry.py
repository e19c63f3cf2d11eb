"""Service discovery for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from types import TracebackType
from typing import Any

from .._core import Core
from .._directory import Change, Filter, ListedInstance, filter_of
from .._duration import Duration, seconds
from .._errors import LeaseError
from .._registration import Registered
from .._registry import RegistryCore
from ..registry import difference
from ._flow import LoopCall, outcome, run


class Registration:
    """As ``leasehold_client.registry.Registration``."""

    def __init__(self, registry: RegistryCore, registered: Registered, drain: float) -> None:
        self._registry = registry
        self._registered = registered
        self._drain = drain
        #: Set when it is over for good: deregistered, replaced by another, or refused.
        self.ended = asyncio.Event()
        registered.on_end = LoopCall(self.ended.set)

    @property
    def lease(self) -> int:
        """The number of its lease; 0 while it is not registered."""
        return self._registered.lease

    @property
    def reason(self) -> LeaseError | None:
        """Why it is over for good."""
        return self._registered.reason

    async def update(self, *, service: str | None = None, status: str | None = None, load: float | None = None, **fields: Any) -> None:
        """Changes what the instances say of themselves, or those of one ``service``.

        A load is written at most once a second, an unchanged value not at all.
        """
        await run(self._registry.update(self._registered, service, status, load, fields))

    async def drain(self) -> None:
        """Still listed, but not picked any more."""
        await self.update(status="draining")

    async def deregister(self) -> None:
        """Removes the instance, after it was listed as draining for the time of the ``drain`` option. Harmless when repeated."""
        await run(self._registry.deregister(self._registered, self._drain))

    async def __aenter__(self) -> Registration:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            await self.deregister()
        except LeaseError as failure:
            if failure.code not in ("UNKNOWN", "UNAVAILABLE"):
                raise


class Discovery:
    """As ``leasehold_client.registry.Discovery``; ``async for`` yields the instances that are there, then every change."""

    def __init__(self, registry: RegistryCore, chosen: Filter, max_stale: Duration | None) -> None:
        self._registry = registry
        self._filter = chosen
        self._max_stale = None if max_stale is None else seconds(max_stale, "max_stale")

    @property
    def age(self) -> float:
        """How old the list may be, in seconds. Infinite before the first answer."""
        return self._registry.directory.age

    async def list(self) -> list[ListedInstance]:
        """The matching instances, nearest first, then by name."""
        return await run(self._registry.list(self._filter, self._max_stale))

    async def pick(self, *, strategy: str | None = None, key: str | None = None) -> ListedInstance | None:
        """One instance that may be used now; ``None`` if there is none."""
        return await run(self._registry.pick(self._filter, self._max_stale, strategy, key))

    async def changes(self) -> AsyncIterator[Change]:
        """Yields the instances that are there as ``added``, then every change. Ends when the leases are closed."""
        core = self._registry.core
        directory = await run(self._registry.ready())
        there, stream = core.do(lambda engine: directory.listen())
        try:
            for instance in there:
                if self._filter.matches(instance):
                    yield Change("added", instance)
            while True:
                future = stream.next() if stream.closed else core.do(lambda engine: stream.next())
                change = await outcome(future)
                if change is None:
                    return
                seen = difference(self._filter, *change)
                if seen is not None:
                    yield seen
        finally:
            core.owner.post(lambda engine: directory.unlisten(stream))

    def __aiter__(self) -> AsyncIterator[Change]:
        return self.changes()


class Registry:
    """As ``leasehold_client.registry.Registry``."""

    def __init__(self, core: Core) -> None:
        self._registry = RegistryCore(core)

    async def register(
        self,
        service: str,
        *,
        instance: str | None = None,
        ttl: Duration = 30,
        grace: Duration | None = None,
        heartbeat: Duration | None = None,
        drain: Duration = 0,
        wait: Duration = 0,
        status: str | None = None,
        load: float | None = None,
        on_event: Callable[[str, LeaseError | None], None] | None = None,
        **fields: Any,
    ) -> Registration:
        """Lists an instance. Raises ``HELD`` if another holder has the name (after ``wait``), ``STALE`` if a newer generation has it."""
        described = {"service": service, "instance": instance, "status": status, "load": load, **fields}
        registered = await run(self._registry.register([described], ttl, grace, wait, on_event, heartbeat))
        return Registration(self._registry, registered, seconds(drain, "drain"))

    async def register_all(
        self,
        instances: Iterable[Mapping[str, Any]],
        *,
        ttl: Duration = 30,
        grace: Duration | None = None,
        heartbeat: Duration | None = None,
        drain: Duration = 0,
        wait: Duration = 0,
        on_event: Callable[[str, LeaseError | None], None] | None = None,
    ) -> Registration:
        """Several instances on one lease: they are renewed together, and end together.

        >>> await leases.registry.register_all([{"service": "planner", "address": a}, {"service": "metrics", "address": b}])
        """
        flow = self._registry.register(list(instances), ttl, grace, wait, on_event, heartbeat)
        return Registration(self._registry, await run(flow), seconds(drain, "drain"))

    async def services(self) -> list[dict[str, Any]]:
        """For each service: its instances, how many of them are suspect, and whether its lapses are slowed."""
        return await run(self._registry.services())

    def discover(
        self,
        service: str | None = None,
        *,
        capability: str | Iterable[str] | None = None,
        tag: str | Iterable[str] | None = None,
        zone: str = "",
        status: str | Iterable[str] | None = None,
        max_stale: Duration | None = None,
    ) -> Discovery:
        """The instances that match all that is given. One watch serves all discoveries of this process."""
        return Discovery(self._registry, filter_of(service, capability, tag, zone, status), max_stale)
