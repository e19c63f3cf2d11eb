"""A client with real sockets and the system's clocks. Loaded by the first ``connect``: an import of the package needs none of it."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

from ._address import parse
from ._clock import SystemClock
from ._core import Core
from ._duration import Duration, seconds
from ._engine import Engine, Options
from ._errors import LeaseError
from ._runner import Runner

if TYPE_CHECKING:
    import ssl


def open_core(
    url: str | None,
    holder: str | None,
    api_key: str | None,
    ttl: Duration,
    tls: ssl.SSLContext | None,
    clock_error: float,
    incarnation: int | None,
) -> Core:
    """Checks what ``connect`` was given, and begins to connect."""
    if not 0 <= clock_error < 0.5:
        raise LeaseError("INVALID", f"clock_error must be from 0 to 0.5, not {clock_error}", {"option": "clock_error"})
    if incarnation is not None and (not isinstance(incarnation, int) or isinstance(incarnation, bool) or incarnation < 1):
        text = f"incarnation is the number that leases.incarnation of a former process was, not {incarnation!r}"
        raise LeaseError("INVALID", text, {"option": "incarnation"})
    addresses, key = parse(url, tls)
    term, clock = seconds(ttl, "ttl"), SystemClock()
    engine = Engine(Options(holder or default_holder(), api_key or key, clock_error, len(addresses), incarnation), clock)
    return Core(engine, Runner(engine, addresses, clock), term)


def default_holder() -> str:
    return os.environ.get("LEASEHOLD_HOLDER") or f"{socket.gethostname()}:{os.getpid()}"
