"""Pools for threads: members of which a caller takes as many as it needs."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING

from ._core import AcquireOptions
from ._duration import Duration
from ._errors import LeaseError
from ._flow import run
from ._pool import DEVICES, DeviceEnvironment, PoolCore, take_options
from ._sync import Lease
from ._widening import Member

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._core import Core
    from ._held import Held
    from ._sync import Leases

__all__ = ["Member", "Pool", "PoolLease"]


class PoolLease(Lease):
    """Members that were taken. Releasing them restores ``CUDA_VISIBLE_DEVICES``."""

    def __init__(self, core: Core, held: Held, members: list[Member], variable: str | None) -> None:
        super().__init__(core, held)
        self.members = tuple(members)
        self._environment = DeviceEnvironment(members, variable)
        self._environment.enter()

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices of the members: the label ``device``, or the digits at the end of the name."""
        return self._environment.devices

    def release(self) -> None:
        """Stops using them, then tells the server."""
        self._environment.leave()
        super().release()

    def __enter__(self) -> PoolLease:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._environment.leave()
        super().__exit__(kind, error, trace)


class Pool:
    """GPUs, licences, test machines. Get one from ``leases.pool(name)``.

    >>> with leases.pool("gpu", match={"model": "A100"}).take(2, wait="1h") as gpus:
    ...     train(gpus.devices)  # CUDA_VISIBLE_DEVICES is set
    """

    def __init__(self, leases: Leases, name: str, *, match: Mapping[str, str] | None = None) -> None:
        self._core = leases._core
        self._pool = PoolCore(leases._core, name, match)

    def offer(self, member: str, *, labels: Mapping[str, str] | None = None, units: int = 1, ttl: Duration | None = None) -> Lease:
        """Offers a member: it is in the pool while the returned lease is held."""
        return Lease(self._core, run(self._pool.offer(member, labels, units, ttl), self._core.owner.wait))

    def members(self, match: Mapping[str, str] | None = None) -> list[Member]:
        """The members that match, taken or not."""
        return run(self._pool.members(match), self._core.owner.wait)

    def take(
        self,
        count: int = 1,
        *,
        match: Mapping[str, str] | None = None,
        expect: Duration | None = None,
        variable: str | None = DEVICES,
        **options: Unpack[AcquireOptions],
    ) -> PoolLease:
        """Takes any ``count`` of the members that match, all at once. Waits until enough are offered and free, or for ``wait``.

        ``units``: of each member; all of them by default, so that no other taker is on it. ``expect``: how long it will be used.
        ``variable``: the environment variable that names the devices, ``CUDA_VISIBLE_DEVICES`` by default; ``None`` sets none.
        """
        flow = self._pool.take(count, match, take_options(expect, options), True)
        held, members = run(flow, self._core.owner.wait)
        return PoolLease(self._core, held, members, variable)

    def try_take(
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
            flow = self._pool.take(count, match, take_options(expect, options), False)
            held, members = run(flow, self._core.owner.wait)
        except LeaseError as error:
            if error.code == "HELD":
                return None
            raise
        return PoolLease(self._core, held, members, variable)
