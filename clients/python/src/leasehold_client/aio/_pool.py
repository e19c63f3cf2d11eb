"""Pools for asyncio."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING

from .._core import AcquireOptions, Core
from .._duration import Duration
from .._errors import LeaseError
from .._held import Held
from .._pool import DEVICES, DeviceEnvironment, PoolCore, take_options
from .._widening import Member
from ._flow import run
from ._lease import Lease

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._leases import Leases


class PoolLease(Lease):
    """As ``leasehold_client.pool.PoolLease``."""

    def __init__(self, core: Core, held: Held, members: list[Member], variable: str | None) -> None:
        super().__init__(core, held)
        self.members = tuple(members)
        self._environment = DeviceEnvironment(members, variable)
        self._environment.enter()

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices of the members: the label ``device``, or the digits at the end of the name."""
        return self._environment.devices

    async def release(self) -> None:
        """Stops using them, then tells the server."""
        self._environment.leave()
        await super().release()

    async def __aenter__(self) -> PoolLease:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._environment.leave()
        await super().__aexit__(kind, error, trace)


class Pool:
    """As ``leasehold_client.pool.Pool``."""

    def __init__(self, leases: Leases, name: str, *, match: Mapping[str, str] | None = None) -> None:
        self._core = leases._core
        self._pool = PoolCore(leases._core, name, match)

    async def offer(self, member: str, *, labels: Mapping[str, str] | None = None, units: int = 1, ttl: Duration | None = None) -> Lease:
        """Offers a member: it is in the pool while the returned lease is held."""
        return Lease(self._core, await run(self._pool.offer(member, labels, units, ttl)))

    async def members(self, match: Mapping[str, str] | None = None) -> list[Member]:
        """The members that match, taken or not."""
        return await run(self._pool.members(match))

    async def take(
        self,
        count: int = 1,
        *,
        match: Mapping[str, str] | None = None,
        expect: Duration | None = None,
        variable: str | None = DEVICES,
        **options: Unpack[AcquireOptions],
    ) -> PoolLease:
        """Takes any ``count`` of the members that match, all at once. Waits until enough are offered and free, or for ``wait``."""
        held, members = await run(self._pool.take(count, match, take_options(expect, options), True))
        return PoolLease(self._core, held, members, variable)

    async def try_take(
        self,
        count: int = 1,
        *,
        match: Mapping[str, str] | None = None,
        expect: Duration | None = None,
        variable: str | None = DEVICES,
        **options: Unpack[AcquireOptions],
    ) -> PoolLease | None:
        """As ``take``, without waiting: ``None`` if too few are offered or free."""
        try:
            held, members = await run(self._pool.take(count, match, take_options(expect, options), False))
        except LeaseError as error:
            if error.code == "HELD":
                return None
            raise
        return PoolLease(self._core, held, members, variable)
