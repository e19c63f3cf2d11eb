"""The errors of the client. Codes and messages are those of the TypeScript library."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class LeaseError(Exception):
    """A call failed. Programs read ``code``, ``reason`` and ``facts``, people read the message, which may change in any version.

    ======================================  =============================================================
    ``HELD``                                another holder has it, and the call does not wait
    ``TIMEOUT``                             it was not granted within ``wait``
    ``LOST``                                the lease ended before its holder released it (``LeaseLost``)
    ``GONE``                                the lease has ended
    ``STALE``                               a newer token, generation or incarnation was seen: stop
    ``DEADLOCK``                            waiting would complete a cycle
    ``UNAVAILABLE``                         certainly not done: retry
    ``UNKNOWN``                             may or may not have been done
    ``INVALID`` ``UNSUPPORTED``             the call is wrong, or impossible here
    ``NOT_FOUND``                           there is no such thing
    ``FORBIDDEN`` ``UNAUTHENTICATED``       the key does not allow it
    ``LIMIT``                               a limit is reached
    ``DIVERGED``                            the log lost records that this process had seen
    ======================================  =============================================================

    >>> try:
    ...     leases.acquire("jobs/nightly", wait=60)
    ... except LeaseError as error:
    ...     if error.code != "TIMEOUT":
    ...         raise
    """

    #: Why, more exactly than ``code``. None where the code says it all, and from a server that sends none.
    reason: str | None

    def __init__(self, code: str, message: str, facts: Mapping[str, Any] | None = None, *, reason: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.facts: Mapping[str, Any] = facts or {}

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"

    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions cross process borders by pickle (multiprocessing, concurrent.futures).
        return (_restored, (type(self), self.code, self.message, dict(self.facts), self.reason))


class LeaseLost(LeaseError):
    """The lease ended before its holder released it. ``facts`` has ``cause``, ``ms``, ``lease``, ``resource`` and ``holder``."""

    def __init__(self, message: str, facts: Mapping[str, Any], *, reason: str | None = None) -> None:
        super().__init__("LOST", message, facts, reason=reason)

    @property
    def cause(self) -> str:
        """Such as ``unreachable``, ``stall``, ``suspend``, ``revoked``, ``parent``, ``inactive``, ``rewound`` or ``lapsed``."""
        return str(self.facts.get("cause", "ended"))

    @property
    def duration(self) -> float:
        """For how many seconds the cause lasted: the suspend, the stall, or the time without an answer."""
        return float(self.facts.get("ms", 0)) / 1000


def _restored(kind: type[LeaseError], code: str, message: str, facts: dict[str, Any], reason: str | None = None) -> LeaseError:
    if issubclass(kind, LeaseLost):
        return LeaseLost(message, facts, reason=reason)
    return LeaseError(code, message, facts, reason=reason)


def closed_error() -> LeaseError:
    return LeaseError("UNAVAILABLE", "these leases were closed")
