"""The errors of the client. Codes and messages are those of the TypeScript library."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self


class LeaseError(Exception):
    """A call failed. Programs read ``code``, ``reason`` and ``facts``, people read the message, which may change in any version.

    Each code has a class of its own, so that a program can catch it by class or by code:

    ======================  ======================  =================================================================
    ``HELD``                ``Held``                another holder has it, and the call does not wait
    ``TIMEOUT``             ``Timeout``             it was not granted within ``wait``. ``facts`` name its ``holder``
    ``LOST``                ``Lost``                the lease ended before its holder released it (``LeaseLost``)
    ``GONE``                ``Gone``                the lease has ended
    ``STALE``               ``Stale``               a newer token, generation or incarnation was seen: stop
    ``DEADLOCK``            ``Deadlock``            waiting would complete a cycle
    ``UNAVAILABLE``         ``Unavailable``         certainly not done: retry
    ``UNKNOWN``             ``Unknown``             may or may not have been done
    ``INVALID``             ``Invalid``             the call is wrong
    ``UNSUPPORTED``         ``Unsupported``         the call is impossible here
    ``NOT_FOUND``           ``NotFound``            there is no such thing
    ``FORBIDDEN``           ``Forbidden``           the key does not allow it
    ``UNAUTHENTICATED``     ``Unauthenticated``     the key is not known
    ``LIMIT``               ``Limit``               a limit is reached
    ``DIVERGED``            ``Diverged``            the log lost records that this process had seen
    ======================  ======================  =================================================================

    >>> try:
    ...     leases.acquire("jobs/nightly", wait=60)
    ... except Timeout as error:
    ...     print("still held by", error.facts.get("holder"))
    """

    #: Why, more exactly than ``code``. None where the code says it all, and from a server that sends none.
    reason: str | None

    def __new__(cls, code: str, *args: Any, **options: Any) -> Self:
        # ``LeaseError("HELD", …)`` is a ``Held``. Codes of later servers have no class yet.
        kind: Any = _KINDS.get(code, cls) if cls is LeaseError else cls
        made: Self = Exception.__new__(kind)
        return made

    def __init__(self, code: str, message: str, facts: Mapping[str, Any] | None = None, *, reason: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.facts: Mapping[str, Any] = facts or {}

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"

    def __repr__(self) -> str:
        reason = "" if self.reason is None else f", reason={self.reason!r}"
        facts = f", {dict(self.facts)!r}" if self.facts else ""
        return f"{type(self).__name__}({self.code!r}, {self.message!r}{facts}{reason})"

    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions cross process borders by pickle (multiprocessing, concurrent.futures).
        return (_restored, (self.code, self.message, dict(self.facts), self.reason))


class Held(LeaseError):
    """``HELD``: another holder has it, and the call does not wait."""


class Timeout(LeaseError):
    """``TIMEOUT``: it was not granted within ``wait``. ``facts`` has the present ``holder`` and all ``holders``, where they can be seen."""


class LeaseLost(LeaseError):
    """``LOST``: it ended before its holder released it. ``facts`` has ``cause``, ``ms``, ``lease``, ``resource`` and ``holder``."""

    @property
    def cause(self) -> str:
        """Such as ``unreachable``, ``stall``, ``suspend``, ``revoked``, ``parent``, ``inactive``, ``rewound`` or ``lapsed``."""
        return str(self.facts.get("cause", "ended"))

    @property
    def duration(self) -> float:
        """For how many seconds the cause lasted: the suspend, the stall, or the time without an answer."""
        return float(self.facts.get("ms", 0)) / 1000


#: The name of ``LeaseLost`` beside the other classes.
Lost = LeaseLost


class Gone(LeaseError):
    """``GONE``: the lease has ended."""


class Stale(LeaseError):
    """``STALE``: a newer token, generation or incarnation was seen: stop."""


class Deadlock(LeaseError):
    """``DEADLOCK``: waiting would complete a cycle."""


class Unavailable(LeaseError):
    """``UNAVAILABLE``: certainly not done: retry."""


class Unknown(LeaseError):
    """``UNKNOWN``: may or may not have been done."""


class Invalid(LeaseError):
    """``INVALID``: the call is wrong."""


class Unsupported(LeaseError):
    """``UNSUPPORTED``: the call is impossible here."""


class NotFound(LeaseError):
    """``NOT_FOUND``: there is no such thing."""


class Forbidden(LeaseError):
    """``FORBIDDEN``: the key does not allow it."""


class Unauthenticated(LeaseError):
    """``UNAUTHENTICATED``: the key is not known."""


class Limit(LeaseError):
    """``LIMIT``: a limit is reached."""


class Diverged(LeaseError):
    """``DIVERGED``: the log lost records that this process had seen."""


_KINDS: dict[str, type[LeaseError]] = {
    "HELD": Held,
    "TIMEOUT": Timeout,
    "LOST": LeaseLost,
    "GONE": Gone,
    "STALE": Stale,
    "DEADLOCK": Deadlock,
    "UNAVAILABLE": Unavailable,
    "UNKNOWN": Unknown,
    "INVALID": Invalid,
    "UNSUPPORTED": Unsupported,
    "NOT_FOUND": NotFound,
    "FORBIDDEN": Forbidden,
    "UNAUTHENTICATED": Unauthenticated,
    "LIMIT": Limit,
    "DIVERGED": Diverged,
}


def _restored(code: str, message: str, facts: dict[str, Any], reason: str | None) -> LeaseError:
    return LeaseError(code, message, facts, reason=reason)


def closed_error() -> LeaseError:
    return LeaseError("UNAVAILABLE", "these leases were closed")
