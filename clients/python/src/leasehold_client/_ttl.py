"""A ttl that is adjusted to what policies allow, instead of refused."""

from __future__ import annotations

from typing import NamedTuple

from ._duration import Duration, seconds
from ._errors import LeaseError


class Ttl(NamedTuple):
    """The preferred ttl, or the nearest ttl between ``min`` and ``max`` that policies allow. ``lease.ttl`` says which.

    >>> leases.acquire("jobs/nightly", ttl=leasehold_client.Ttl("5m", min="30s"))
    """

    preferred: Duration
    #: A shorter one is of no use. Any, by default.
    min: Duration | None = None
    #: A longer one is not wanted. Any, by default.
    max: Duration | None = None


def ttl_range(ttl: Duration | Ttl) -> tuple[float, tuple[float, float] | None]:
    """The preferred ttl in seconds, and its limits. Without limits, a ttl that policies do not allow is refused."""
    if not isinstance(ttl, Ttl):
        return seconds(ttl, "ttl"), None
    preferred = seconds(ttl.preferred, "ttl.preferred")
    low = 0.0 if ttl.min is None else seconds(ttl.min, "ttl.min")
    high = float("inf") if ttl.max is None else seconds(ttl.max, "ttl.max")
    if not low <= preferred <= high:
        raise LeaseError("INVALID", "ttl must have min ≤ preferred ≤ max", {"option": "ttl"})
    return preferred, (low, high)
