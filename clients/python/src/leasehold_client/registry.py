"""Service discovery for threads: instances are listed only while they live."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any

from ._core import Core
from ._directory import Change, Filter, ListedInstance, filter_of
from ._duration import Duration, seconds
from ._errors import LeaseError
from ._flow import run
from ._registration import Registered
from ._registry import RegistryCore

__all__ = ["Change", "Discovery", "ListedInstance", "Registration", "Registry"]


class Registration:
    """A registered instance. It is listed until ``deregister``, or until this process has not renewed it for a ttl and a grace.

    It survives outages: when it lapsed, the instance registers again by itself. ``ended`` is set when it is over for good.
    """

    def __init__(self, registry: RegistryCore, registered: Registered, drain: float) -> None:
        self._registry = registry
        self._registered = registered
        self._drain = drain
        #: Set when it is over for good: deregistered, replaced by another, or refused.
        self.ended = threading.Event()
        registered.on_end = self.ended.set

    @property
    def lease(self) -> int:
        """The number of its lease; 0 while it is not registered."""
        return self._registered.lease

    @property
    def reason(self) -> LeaseError | None:
        """Why it is over for good."""
        return self._registered.reason

    def update(self, *, service: str | None = None, status: str | None = None, load: float | None = None, **fields: Any) -> None:
        """Changes what the instances say of themselves, or those of one ``service``.

        A load is written at most once a second, an unchanged value not at all.
        """
        run(self._registry.update(self._registered, service, status, load, fields), self._registry.core.owner.wait)

    def drain(self) -> None:
        """Still listed, but not picked any more."""
        self.update(status="draining")

    def deregister(self) -> None:
        """Removes the instance, after it was listed as draining for the time of the ``drain`` option. Harmless when repeated."""
        run(self._registry.deregister(self._registered, self._drain), self._registry.core.owner.wait)

    def __enter__(self) -> Registration:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._registry.core.owner.foreign:
            return
        try:
            self.deregister()
        except LeaseError as failure:
            if failure.code not in ("UNKNOWN", "UNAVAILABLE"):
                raise


class Discovery:
    """The instances that match a filter. Iterating yields those that are there, then every change.

    Not promised: that a picked instance is still alive; only a call to it can tell.
    """

    def __init__(self, registry: RegistryCore, chosen: Filter, max_stale: Duration | None) -> None:
        self._registry = registry
        self._filter = chosen
        self._max_stale = None if max_stale is None else seconds(max_stale, "max_stale")

    @property
    def age(self) -> float:
        """How old the list may be, in seconds. Infinite before the first answer."""
        return self._registry.directory.age

    def list(self) -> list[ListedInstance]:
        """The matching instances, nearest first, then by name."""
        return run(self._registry.list(self._filter, self._max_stale), self._registry.core.owner.wait)

    def pick(self, *, strategy: str | None = None, key: str | None = None) -> ListedInstance | None:
        """One instance that may be used now; ``None`` if there is none.

        Strategies: ``round-robin``, ``weighted``, ``least-loaded``, ``two-choices``, and ``hash``, the default with a ``key``.
        """
        return run(self._registry.pick(self._filter, self._max_stale, strategy, key), self._registry.core.owner.wait)

    def changes(self) -> Iterator[Change]:
        """Yields the instances that are there as ``added``, then every change. Ends when the leases are closed."""
        core = self._registry.core
        directory = run(self._registry.ready(), core.owner.wait)
        there, stream = core.do(lambda engine: directory.listen())
        try:
            for instance in there:
                if self._filter.matches(instance):
                    yield Change("added", instance)
            while (change := core.owner.wait(stream.next() if stream.closed else core.do(lambda engine: stream.next()))) is not None:
                seen = difference(self._filter, *change)
                if seen is not None:
                    yield seen
        finally:
            core.owner.post(lambda engine: directory.unlisten(stream))

    def __iter__(self) -> Iterator[Change]:
        return self.changes()


def difference(chosen: Filter, before: ListedInstance | None, after: ListedInstance | None) -> Change | None:
    """A change as the filter sees it."""
    was = before if before is not None and chosen.matches(before) else None
    now = after if after is not None and chosen.matches(after) else None
    if now is None:
        return None if was is None else Change("removed", was)
    return Change("added" if was is None else "changed", now)


class Registry:
    """Registers and discovers instances of services. Get it from ``leases.registry``. Closing the leases deregisters all.

    >>> with leases.registry.register("planner", address="http://10.0.0.7:8080", capabilities=["plan"]) as me:
    ...     me.update(load=3)
    ...     reviewer = leases.registry.discover(capability="review").pick()
    """

    def __init__(self, core: Core) -> None:
        self._registry = RegistryCore(core)

    def register(
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
        """Lists an instance. Raises ``HELD`` if another holder has the name (after ``wait``), ``STALE`` if a newer generation has it.

        ``instance`` is the holder's name by default. ``grace``: how long it is listed as suspect after its ttl, half of that by default.
        ``heartbeat``: how often it is renewed, at most half of the ttl; a third of it by default.
        ``fields``: ``address`` or ``addresses``, ``capabilities``, ``tags``, ``metadata``, ``weight``, ``zone``, ``generation``, ``check``.
        ``on_event`` is called with ``unreachable``, ``reached``, ``lapsed``, ``registered`` or ``ended``, and the reason of the last.
        """
        described = {"service": service, "instance": instance, "status": status, "load": load, **fields}
        flow = self._registry.register([described], ttl, grace, wait, on_event, heartbeat)
        return Registration(self._registry, run(flow, self._registry.core.owner.wait), seconds(drain, "drain"))

    def register_all(
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

        >>> leases.registry.register_all([{"service": "planner", "address": a}, {"service": "metrics", "address": b}])
        """
        flow = self._registry.register(list(instances), ttl, grace, wait, on_event, heartbeat)
        return Registration(self._registry, run(flow, self._registry.core.owner.wait), seconds(drain, "drain"))

    def services(self) -> list[dict[str, Any]]:
        """For each service: its instances, how many of them are suspect, and whether its lapses are slowed."""
        return run(self._registry.services(), self._registry.core.owner.wait)

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
        """The instances that match all that is given. One watch serves all discoveries of this process.

        With ``max_stale``, a list that is older is refused with ``UNAVAILABLE``.
        """
        return Discovery(self._registry, filter_of(service, capability, tag, zone, status), max_stale)
