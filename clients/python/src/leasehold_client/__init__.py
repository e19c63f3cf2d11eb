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
from ._errors import LeaseError, LeaseLost
from ._sync import Lease, Leases, connect
from ._ttl import Ttl

__all__ = ["AcquireOptions", "Duration", "Lease", "LeaseError", "LeaseLost", "Leases", "Ttl", "connect"]
