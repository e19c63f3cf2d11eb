"""What a program asks for when it acquires, and the command that asks the server for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ._held import Held

FOREVER = float("inf")
#: When leases are renewed, as a part of their term, by strategy.
INTERVALS = {"half": 1 / 2, "continuous": 1 / 8, "on-activity": 1 / 8}


class AcquireRequest(NamedTuple):
    """What to acquire. Without names: a lease on nothing, for entries and children."""

    names: tuple[str, ...]
    ttl: float
    #: Seconds to wait; ``inf``: until granted; ``None``: do not wait.
    wait: float | None = None
    mode: str = "exclusive"
    units: int | None = None
    #: Units that may be in use at once, as this request states.
    permits: int | None = None
    #: All names below its own, too.
    covers: bool = False
    #: Units by resource, where they differ.
    units_of: Mapping[str, int] = {}
    priority: int | None = None
    parent: Held | int | None = None
    any: int | None = None
    labels: Mapping[str, str] = {}
    entries: Mapping[str, str] = {}
    #: Generations of entries, by key: a higher one takes the key over from a lower one.
    generations: Mapping[str, int] = {}
    grace: float | None = None
    max_life: float | None = None
    #: This process gives the lease up after so many seconds.
    max_hold: float | None = None
    renew: str = "half"
    recall: bool = False
    steal: str = ""
    on_wait: Callable[[int], None] | None = None
    #: With limits, the ttl is a preference.
    ttl_limits: tuple[float, float] | None = None
    #: Answered with the lease that this process has on the same names, if it has one.
    reuse: bool = False
    #: Leases that the caller keeps while it waits.
    holding: tuple[Held, ...] = ()
    #: Called in the engine with the lease that waits, again after each connection that broke.
    on_queued: Callable[[int], None] | None = None

    def words(self, holder: str, incarnation: int | None, op: str) -> tuple[str | int, ...]:
        words: list[str | int] = ["LEASE.ACQUIRE", *self.names] if self.names else ["LEASE.GRANT"]
        words += ("TTL", round(self.ttl * 1000), "HOLDER", holder)
        if self.ttl_limits is not None:
            least, most = self.ttl_limits
            words += ("TTLMIN", round(least * 1000))
            if most != FOREVER:
                words += ("TTLMAX", round(most * 1000))
        if self.reuse and incarnation is not None:
            words.append("REUSE")
        if self.wait is not None and self.names:
            words.append("QUEUE")
        if self.mode == "shared":
            words.append("SHARED")
        if self.units is not None:
            words += ("UNITS", self.units)
        if self.permits is not None:
            words += ("PERMITS", self.permits)
        if self.covers:
            words.append("COVERS")
        if self.priority is not None:
            words += ("PRIORITY", self.priority)
        if self.parent is not None:
            words += ("PARENT", self.parent.id if isinstance(self.parent, Held) else self.parent)
        if self.any is not None:
            words += ("ANY", self.any)
        if incarnation is not None:
            words += ("INCARNATION", incarnation)
        holding = [held.id for held in self.holding if held.reason is None] if self.names else []
        if holding:
            words += ("HOLDING", *holding)
        if self.grace is not None:
            words += ("GRACE", round(self.grace * 1000))
        if self.max_life is not None:
            words += ("MAXLIFE", round(self.max_life * 1000))
        for name, units in self.units_of.items():
            words += ["UNITSOF", name, units]
        for name, value in self.labels.items():
            words += ["LABEL", name, value]
        for key, value in self.entries.items():
            words += ["ENTRY", key, value]
            if self.generations.get(key, 0) > 0:
                words += ["GENERATION", self.generations[key]]
        if self.recall:
            words.append("RECALL")
        if self.steal:
            words.append("FORCE" if self.steal == "force" else "STEAL")
        return (*words, "OP", op)
