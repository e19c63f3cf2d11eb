"""Leasehold for asyncio: the same names as ``leasehold_client``, with ``await``.

>>> import leasehold_client.aio
>>> async with leasehold_client.aio.connect("leasehold://127.0.0.1:7420") as leases:
...     async with leases.request("jobs/nightly", ttl=30, wait=300) as lease:
...         await write(rows, fence=lease.token)
...         lease.assert_held()

Renewals run on the client's own thread: an event loop that is blocked does not lose its leases, and ``held`` asks the clocks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._duration import Duration
from .._held import CLOCK_ERROR
from ._election import Election, Term
from ._lease import Lease
from ._leases import Leases
from ._pool import Pool, PoolLease
from ._registry import Discovery, Registration, Registry
from ._session import Session

if TYPE_CHECKING:
    import ssl

__all__ = [
    "Discovery",
    "Election",
    "Lease",
    "Leases",
    "Pool",
    "PoolLease",
    "Registration",
    "Registry",
    "Session",
    "Term",
    "connect",
]


def connect(
    url: str | None = None,
    *,
    holder: str | None = None,
    api_key: str | None = None,
    ttl: Duration = 30,
    tls: ssl.SSLContext | None = None,
    clock_error: float = CLOCK_ERROR,
    incarnation: int | None = None,
) -> Leases:
    """As ``leasehold_client.connect``. Use the result with ``async with``."""
    from .._open import open_core

    return Leases(open_core(url, holder, api_key, ttl, tls, clock_error, incarnation))
