"""Members that come to match while a taker waits: it waits for them too, with the place that it would have had from the start."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ._channel import Request
from ._engine import Engine
from ._errors import LeaseError

#: Resources of one lease.
MAX_RESOURCES = 256


class Member(NamedTuple):
    """A member of a pool, taken or not."""

    member: str
    #: The resource that is held while it is taken.
    resource: str
    labels: Mapping[str, str]
    units: int


class Widening:
    """One wait. ``parse`` gives the member of an entry, or None if it does not match. Used in the engine."""

    def __init__(
        self, engine: Engine, prefix: str, members: list[Member], units: int | None, parse: Callable[[dict[str, Any]], Member | None]
    ) -> None:
        self._engine = engine
        self._prefix = prefix
        self._units = units
        self._parse = parse
        self.members = {member.resource: member for member in members}
        self._added: list[Member] = []
        self._lease = 0
        self._watching = False

    def queued(self, lease: int) -> None:
        """It waits as ``lease``: for the first time, or again after a connection broke."""
        self._lease = lease
        self._widen(self._added)
        if not self._watching:
            self._watching = True
            # Watch first, then read: an offer between the two must not be missed.
            self._engine.watches.begin(self._prefix, self._told).add_done_callback(self._begun)

    def _begun(self, begun: Any) -> None:
        if begun.exception() is None:
            self._read()

    def _read(self) -> None:
        self._engine.channel.send(("LEASE.ENTRIES", self._prefix), self._listed, kind="read")

    def _listed(self, value: Any, error: LeaseError | None, request: Request) -> None:
        self._add([entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else [])

    def _told(self, events: list[dict[str, Any]]) -> None:
        if events[0].get("type") == "resync":
            self._read()
        else:
            self._add([event for event in events if event.get("type") == "put"])

    def _add(self, entries: list[dict[str, Any]]) -> None:
        fresh = []
        for member in filter(None, map(self._parse, entries)):
            if member.resource not in self.members and member.units >= (self._units or 1) and len(self.members) < MAX_RESOURCES:
                self.members[member.resource] = member
                fresh.append(member)
        self._added += fresh
        self._widen(fresh)

    def _widen(self, members: list[Member]) -> None:
        if not members:
            return
        words: list[str | int] = ["LEASE.WIDEN", self._lease]
        for member in members:
            words += ["RESOURCE", member.resource]
            each = self._units or member.units
            if each > 1:
                words += ["UNITS", each]
        # A lease that was granted meanwhile is left as it is, and one that is gone asks again by itself.
        self._engine.channel.send((*words, "OP", self._engine.operation()), _done)

    def end(self) -> None:
        if self._watching:
            self._engine.watches.end(self._prefix, self._told)


def _done(value: Any, error: LeaseError | None, request: Request) -> None:
    """A refusal leaves the wait as it is."""
