"""Waits until leases were renewed for a whole term, however long a stalled machine takes for that."""

from __future__ import annotations

import time
from typing import Any

# A third of a term passes between two renewals.
A_TERM = 3


def await_a_term(client: Any, *held: Any) -> None:
    """The calling thread sleeps in between, as one does that is busy with something else. Returns early if a lease is over."""
    wanted = client.stats["renewals"] + A_TERM * len(held)
    while client.stats["renewals"] < wanted and all(lease.held for lease in held):
        time.sleep(0.01)
