"""Semaphores for asyncio."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._core import AcquireOptions
from ..semaphore import Permits

if TYPE_CHECKING:
    from ._lease import Lease
    from ._leases import Leases
    from ._request import Request


class Semaphore:
    """As ``leasehold_client.semaphore.Semaphore``."""

    def __init__(self, leases: Leases, name: str, options: AcquireOptions) -> None:
        self._leases = leases
        self._name = name
        self._permits = Permits(options)

    def request(self, units: int = 1) -> Request:
        """So many permits for an ``async with`` block."""
        return self._leases.request(self._name, **self._permits.taking(units))

    async def acquire(self, units: int = 1) -> Lease:
        """So many permits. Waits until granted, or for ``wait``."""
        return await self._leases.acquire(self._name, **self._permits.taking(units))

    async def try_acquire(self, units: int = 1) -> Lease | None:
        """``None`` when they are not free."""
        return await self._leases.try_acquire(self._name, **self._permits.trying(units))
