"""Sessions for threads: the presence of a user, an agent or a job."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ._core import AcquireOptions, Names
from ._duration import Duration
from ._errors import LeaseError

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._sync import Lease, Leases

__all__ = ["Session"]


def session_options(ttl: Duration, renew: str, labels: Mapping[str, str] | None, parent: Any, max_life: Duration | None) -> dict[str, Any]:
    """Options of ``grant`` for a session."""
    options: dict[str, Any] = {"ttl": ttl, "renew": renew, "labels": labels, "parent": parent, "max_life": max_life}
    return {name: value for name, value in options.items() if value is not None}


def check_no_parent(call: str, options: Mapping[str, Any]) -> None:
    if "parent" in options:
        raise LeaseError("INVALID", f"{call} takes no parent: the session is the parent", {"option": "parent"})


class Session:
    """Activity renews a session; leases, entries and sessions under it end with it. Get one from ``leases.session()``.

    >>> with leases.session(ttl="20m") as session:
    ...     session.acquire("documents/42")
    ...     session.touch()
    """

    def __init__(self, leases: Leases, lease: Lease) -> None:
        self._leases = leases
        #: The lease of the session: the parent of everything under it.
        self.lease = lease

    @classmethod
    def begin_with(cls, leases: Leases, **options: Any) -> Session:
        """Used by ``leases.session``."""
        return cls(leases, leases.grant(**session_options(**options)))

    @property
    def id(self) -> int:
        """The number of its lease."""
        return self.lease.id

    @property
    def ended(self) -> threading.Event:
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

    def acquire(self, names: Names, **options: Unpack[AcquireOptions]) -> Lease:
        """Acquires a lease that ends with the session, or when it is released."""
        check_no_parent("acquire of a session", options)
        options["parent"] = self.lease
        return self._leases.acquire(names, **options)

    def begin(self, *, ttl: Duration = "20m", renew: str = "on-activity", labels: Mapping[str, str] | None = None) -> Session:
        """A session that ends with this one."""
        return self._leases.session(ttl=ttl, renew=renew, labels=labels, parent=self.lease)

    def put(self, key: str, value: str) -> None:
        """Sets an entry that others can read while the session lasts."""
        self.lease.put(key, value)

    def delete(self, key: str) -> None:
        """Deletes an entry of the session."""
        self.lease.delete(key)

    def end(self) -> None:
        """Ends the session, with everything under it."""
        self.lease.release()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.lease.__exit__(kind, error, trace)
