"""Sessions for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING

from .._core import AcquireOptions, Names
from .._duration import Duration
from ..session import check_no_parent
from ._lease import Lease

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._leases import Leases


class Session:
    """As ``leasehold_client.session.Session``. Get one with ``await leases.session()``."""

    def __init__(self, leases: Leases, lease: Lease) -> None:
        self._leases = leases
        #: The lease of the session: the parent of everything under it.
        self.lease = lease

    @property
    def id(self) -> int:
        """The number of its lease."""
        return self.lease.id

    @property
    def ended(self) -> asyncio.Event:
        """Set when the session is over."""
        return self.lease.lost

    @property
    def active(self) -> bool:
        """Whether the session lasts. Asks the clocks."""
        return self.lease.held

    def remaining(self) -> float:
        """Seconds left without activity; 0 when it is over."""
        return self.lease.remaining()

    def touch(self) -> None:
        """Reports activity. Cheap: call it as often as you like."""
        self.lease.touch()

    async def acquire(self, names: Names, **options: Unpack[AcquireOptions]) -> Lease:
        """Acquires a lease that ends with the session, or when it is released."""
        check_no_parent("acquire of a session", options)
        options["parent"] = self.lease
        return await self._leases.acquire(names, **options)

    async def begin(self, *, ttl: Duration = "20m", renew: str = "on-activity", labels: Mapping[str, str] | None = None) -> Session:
        """A session that ends with this one."""
        return await self._leases.session(ttl=ttl, renew=renew, labels=labels, parent=self.lease)

    async def put(self, key: str, value: str) -> None:
        """Sets an entry that others can read while the session lasts."""
        await self.lease.put(key, value)

    async def delete(self, key: str) -> None:
        """Deletes an entry of the session."""
        await self.lease.delete(key)

    async def end(self) -> None:
        """Ends the session, with everything under it."""
        await self.lease.release()

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.lease.__aexit__(kind, error, trace)
