"""Errors, with the same codes as the TypeScript library."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: Codes that say that a request was certainly not carried out, for a reason that passes: asking again is right.
RETRYABLE = frozenset({"UNAVAILABLE"})


class LeaseError(Exception):
    """What went wrong. Programs read ``code`` and ``facts``, people read the message.

    Codes: ``HELD`` (another holder has it), ``TIMEOUT`` (not granted within ``wait``), ``LOST`` (the lease ended while
    it was held), ``GONE`` (no such lease), ``STALE`` (a newer token was seen), ``DEADLOCK``, ``INVALID``,
    ``UNAVAILABLE`` (certainly not done), ``UNKNOWN`` (may have been done), ``FORBIDDEN``, ``UNAUTHENTICATED``,
    ``LIMIT``, ``NOT_FOUND``, ``UNSUPPORTED``, ``DIVERGED``.
    """

    def __init__(self, code: str, message: str, facts: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.facts: Mapping[str, Any] = facts or {}

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


class LeaseLost(LeaseError):
    """The lease ended while it was held. ``facts`` has ``cause``, ``resources``, ``lease`` and ``held`` (seconds)."""

    def __init__(self, message: str, facts: Mapping[str, Any]) -> None:
        super().__init__("LOST", message, facts)

    @property
    def cause(self) -> str:
        """Why: ``deadline`` (no renewal was answered in time), ``gone`` (the server ended it), ``rewound``, ``closed``."""
        return str(self.facts.get("cause", "unknown"))
