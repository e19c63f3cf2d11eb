"""Leasehold: time-bound grants that must be renewed or end by themselves.

>>> import leasehold
>>> with leasehold.connect("leasehold://127.0.0.1:7420") as leases:
...     with leases.request("jobs/nightly", ttl=30, wait=300) as lease:
...         write(rows, fence=lease.token)
...         lease.assert_held()
"""

from ._duration import Duration
from ._errors import LeaseError, LeaseLost
from ._sync import Lease, Leases, connect

__all__ = ["Duration", "Lease", "LeaseError", "LeaseLost", "Leases", "connect"]
