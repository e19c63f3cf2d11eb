"""Semaphores for threads: at most so many permits of one name in use at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._core import AcquireOptions
from ._errors import LeaseError

if TYPE_CHECKING:
    from ._sync import Lease, Leases, Request

__all__ = ["Semaphore"]


class Permits:
    """The options of each request of a semaphore."""

    def __init__(self, options: AcquireOptions) -> None:
        permits = options.get("permits")
        # Left out, it would be a lock.
        if not isinstance(permits, int) or isinstance(permits, bool) or permits < 1:
            text = f"permits must be a whole number from 1, as in semaphore('downloads', permits=3); not {permits!r}"
            raise LeaseError("INVALID", text, {"option": "permits"})
        for option in ("any", "mode", "reuse", "steal", "units"):
            if option in options:
                raise LeaseError("INVALID", f"semaphore has no option {option}", {"option": option})
        self._options = options

    def taking(self, units: int) -> AcquireOptions:
        return {**self._options, "units": units}

    def trying(self, units: int) -> AcquireOptions:
        options = self.taking(units)
        options.pop("wait", None)
        return options


class Semaphore:
    """Permits of one name. Get one from ``leases.semaphore(name, permits=3)``.

    >>> downloads = leases.semaphore("downloads", permits=3)
    >>> with downloads.request() as lease:
    ...     fetch_all(lease)
    """

    def __init__(self, leases: Leases, name: str, options: AcquireOptions) -> None:
        self._leases = leases
        self._name = name
        self._permits = Permits(options)

    def request(self, units: int = 1) -> Request:
        """So many permits for a ``with`` block."""
        return self._leases.request(self._name, **self._permits.taking(units))

    def acquire(self, units: int = 1) -> Lease:
        """So many permits. Waits until granted, or for ``wait``."""
        return self._leases.acquire(self._name, **self._permits.taking(units))

    def try_acquire(self, units: int = 1) -> Lease | None:
        """``None`` when they are not free."""
        return self._leases.try_acquire(self._name, **self._permits.trying(units))
