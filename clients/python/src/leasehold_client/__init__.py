"""Leasehold: rights to use a named resource for a limited time, renewed while their holder lives.

>>> import leasehold_client
>>> with leasehold_client.connect("leasehold://127.0.0.1:7420") as leases:
...     with leases.request("jobs/nightly", ttl=30, wait=300) as lease:
...         write(rows, fence=lease.token)
...         lease.assert_held()

``leasehold_client.aio`` has the same names for asyncio, ``leasehold_client.fence`` guards for what you write to, and
``leasehold_client.testing`` leases in virtual time for tests.
"""

from ._core import AcquireOptions
from ._duration import Duration
from ._errors import (
    Deadlock,
    Diverged,
    Forbidden,
    Gone,
    Held,
    Invalid,
    LeaseError,
    LeaseLost,
    Limit,
    Lost,
    NotFound,
    Stale,
    Timeout,
    Unauthenticated,
    Unavailable,
    Unknown,
    Unsupported,
)
from ._sync import Lease, Leases, connect
from ._ttl import Ttl

__version__ = "0.1.0"

__all__ = [
    "AcquireOptions",
    "Deadlock",
    "Diverged",
    "Duration",
    "Forbidden",
    "Gone",
    "Held",
    "Invalid",
    "Lease",
    "LeaseError",
    "LeaseLost",
    "Leases",
    "Limit",
    "Lost",
    "NotFound",
    "Stale",
    "Timeout",
    "Ttl",
    "Unauthenticated",
    "Unavailable",
    "Unknown",
    "Unsupported",
    "__version__",
    "connect",
]
