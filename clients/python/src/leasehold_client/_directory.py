"""All registered instances, kept current by one watch of ``services``, and how one of them is picked."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from ._engine import Engine
from ._entry import INSTANCE_STATUSES, SERVICES, Instance, InstanceState, read_check, read_instance, read_state
from ._errors import LeaseError
from ._rendezvous import draw, hash_of
from ._watch import Stream

STRATEGIES = ("round-robin", "weighted", "least-loaded", "two-choices", "hash")
_TIERS = {"passing": 0, "warning": 0, "suspect": 1, "suppressed": 2}


class ListedInstance(NamedTuple):
    """An instance as clients see it."""

    service: str
    instance: str
    address: str
    addresses: tuple[str, ...]
    status: str
    reason: str
    load: float
    capabilities: tuple[str, ...]
    tags: tuple[str, ...]
    metadata: Any
    weight: int
    zone: str
    generation: int
    lease: int
    holder: str


class Change(NamedTuple):
    """``added``, ``changed`` or ``removed``, and the instance as it is now; a removed one as it was."""

    type: str
    instance: ListedInstance


class Filter(NamedTuple):
    """Selects instances. All given fields must match; ``zone`` orders and excludes nothing."""

    service: str | None = None
    capabilities: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    zone: str = ""
    statuses: tuple[str, ...] = ()

    def matches(self, instance: ListedInstance) -> bool:
        return (
            (self.service is None or instance.service == self.service)
            and all(each in instance.capabilities for each in self.capabilities)
            and all(each in instance.tags for each in self.tags)
            and (not self.statuses or instance.status in self.statuses)
        )


def filter_of(service: str | None, capability: Any, tag: Any, zone: str, status: Any) -> Filter:
    statuses = _several(status)
    for each in statuses:
        if each not in INSTANCE_STATUSES:
            raise LeaseError("INVALID", f"there is no status {each!r}; there are {', '.join(INSTANCE_STATUSES)}")
    return Filter(service, _several(capability), _several(tag), zone, statuses)


def _several(value: Any) -> tuple[str, ...]:
    return () if value is None else (value,) if isinstance(value, str) else tuple(value)


class _Known:
    """What is known of one instance. Its entries come and go one by one."""

    __slots__ = ("check", "holder", "lease", "listed", "registration", "revision", "state", "suppressed", "suspect")

    def __init__(self) -> None:
        self.registration: Instance | None = None
        self.lease = 0
        self.holder = ""
        self.revision = 0
        self.suspect = False
        self.suppressed = False
        self.state: tuple[int, InstanceState] | None = None
        self.check: tuple[int, tuple[str, str]] | None = None
        self.listed: ListedInstance | None = None

    def refresh(self) -> ListedInstance | None:
        made = self.registration
        self.listed = None
        if made is None:
            return None
        # State and check on another lease belong to a predecessor.
        state = self.state[1] if self.state and self.state[0] == self.lease else InstanceState()
        check = self.check[1] if self.check and self.check[0] == self.lease else None
        unchecked = made.check is not None and check is None
        self.listed = ListedInstance(
            made.service,
            made.instance,
            made.addresses[0] if made.addresses else "",
            made.addresses,
            self._status(state.status, check, unchecked),
            "not checked yet" if unchecked else check[1] if check else "",
            state.load,
            made.capabilities,
            made.tags,
            made.metadata,
            made.weight,
            made.zone,
            made.generation,
            self.lease,
            self.holder,
        )
        return self.listed

    def _status(self, declared: str, check: tuple[str, str] | None, unchecked: bool) -> str:
        """The instance's own decision first, then known failures, then suspicions."""
        if declared in ("maintenance", "draining"):
            return declared
        if declared == "critical" or (check and check[0] == "critical"):
            return "critical"
        if unchecked:
            return "unknown"
        if self.suspect:
            return "suspect"
        if self.suppressed:
            return "suppressed"
        return "warning" if declared == "warning" or (check and check[0] == "warning") else "passing"


class Directory:
    """Fed by the engine. Read with the engine's lock held."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._known: dict[str, _Known] = {}
        self._listeners: list[Stream] = []
        self._turns = 0
        self._begun = False
        self._early: list[list[dict[str, Any]]] | None = []
        self._loaded_at: float | None = None
        self.failure: LeaseError | None = None
        self.waiting: list[Callable[[], None]] = []

    # Keeping current

    def begin(self) -> None:
        if self._begun:
            return
        self._begun = True
        begun = self._engine.watches.begin(SERVICES, self._told)
        begun.add_done_callback(lambda future: self._failed(future.exception()) if future.exception() else self._load())

    def _load(self) -> None:
        """After the watch has begun: an event between the two must not be missed."""
        self._early = []
        self._engine.read("LEASE.ENTRIES", SERVICES, "LIMIT", 100_000).add_done_callback(self._loaded)

    def _failed(self, error: BaseException | None) -> None:
        self.failure = error if isinstance(error, LeaseError) else LeaseError("UNAVAILABLE", str(error))
        self._begun = self.loaded
        self._wake()
        if self.loaded and not self._engine.closed:
            self._engine.timers.at(self._engine.clock.read().monotonic + 1.0, self._load)

    def _loaded(self, future: Any) -> None:
        if future.exception() is not None:
            return self._failed(future.exception())
        fresh: dict[str, _Known] = {}
        for entry in future.result():
            if isinstance(entry, dict):
                known = self._put(fresh, entry)
                if known is not None and known.lease == entry.get("lease"):
                    known.suspect = known.suspect or entry.get("status") == "suspect"
                    known.suppressed = known.suppressed or bool(entry.get("suppressed"))
        before, self._known = self._known, fresh
        for name in {**before, **fresh}:
            old = before[name].listed if name in before else None
            self._changed(old, fresh[name].refresh() if name in fresh else None)
        self._loaded_at = self._engine.clock.read().monotonic
        self.failure = None
        early, self._early = self._early or [], None
        for events in early:
            self._apply(events)
        self._wake()

    def _wake(self) -> None:
        waiting, self.waiting = self.waiting, []
        for wake in waiting:
            wake()

    def _told(self, events: list[dict[str, Any]]) -> None:
        if events and events[0].get("type") == "ended":
            self._failed(LeaseError(str(events[0].get("code")), str(events[0].get("message"))))
        elif events and events[0].get("type") == "closed":
            for stream in self._listeners:
                stream.end()
        elif events and events[0].get("type") == "resync":
            self._load()
        elif self._early is not None:
            self._early.append(events)
        else:
            self._apply(events)

    def _apply(self, events: list[dict[str, Any]]) -> None:
        touched: dict[str, None] = {}
        before = {}
        for event in events:
            parts = str(event.get("key", "")).split("/")
            if len(parts) < 3 or parts[0] != SERVICES:
                continue
            name = f"{parts[1]}/{parts[2]}"
            if name not in touched:
                before[name] = self._known[name].listed if name in self._known else None
                touched[name] = None
            if event.get("type") == "put":
                self._put(self._known, event)
            elif name in self._known:
                self._event(self._known[name], parts[3] if len(parts) > 3 else "", event)
        for name in touched:
            known = self._known.get(name)
            self._changed(before[name], known.refresh() if known else None)
            if known and known.registration is None and known.state is None and known.check is None:
                del self._known[name]

    def _put(self, to: dict[str, _Known], entry: dict[str, Any]) -> _Known | None:
        key, value, lease = str(entry.get("key", "")), str(entry.get("value", "")), int(entry.get("lease", 0))
        parts = key.split("/")
        if parts[0] != SERVICES or not 3 <= len(parts) <= 4:
            return None
        known = to.setdefault(f"{parts[1]}/{parts[2]}", _Known())
        revision = int(entry.get("revision", 0))
        part = parts[3] if len(parts) == 4 else ""
        if part == "state":
            known.state = (lease, read_state(value))
        elif part == "check":
            result = read_check(value)
            known.check = None if result is None else (lease, result)
        elif part == "" and revision >= known.revision:
            # A successor starts neither suspect nor suppressed. If it is, an event of the same revision says so.
            if known.lease != lease:
                known.suspect = known.suppressed = False
            known.registration = read_instance(key, value)
            known.lease, known.holder, known.revision = lease, str(entry.get("holder", "")), revision
        return known

    def _event(self, known: _Known, part: str, event: dict[str, Any]) -> None:
        kind, lease, revision = event.get("type"), event.get("lease"), int(event.get("revision", 0))
        if kind == "deleted":
            if part == "state" and known.state and known.state[0] == lease:
                known.state = None
            elif part == "check" and known.check and known.check[0] == lease:
                known.check = None
            elif part == "" and revision >= known.revision:
                known.registration, known.lease, known.suspect, known.suppressed = None, 0, False, False
        elif part == "" and kind in ("suspected", "recovered"):
            known.suspect = kind == "suspected"
        elif part == "" and kind in ("suppressed", "reused"):
            known.suppressed = kind == "suppressed"

    def _changed(self, before: ListedInstance | None, after: ListedInstance | None) -> None:
        if before == after:
            return
        for stream in self._listeners:
            stream.push((before, after))

    # Reading

    @property
    def loaded(self) -> bool:
        return self._loaded_at is not None

    @property
    def age(self) -> float:
        """How old the picture may be, in seconds. Infinite before the first answer."""
        if self._loaded_at is None:
            return math.inf
        # News come over the same connection as answers: silence on one that is alive means that nothing happened.
        if self._engine.watches.current(SERVICES):
            self._loaded_at = max(self._loaded_at, self._engine.channel.heard)
        return max(0.0, self._engine.clock.read().monotonic - self._loaded_at)

    def listen(self) -> tuple[list[ListedInstance], Stream]:
        """The instances that are there, and every change from then on."""
        stream = Stream()
        self._listeners.append(stream)
        return [known.listed for known in self._known.values() if known.listed], stream

    def unlisten(self, stream: Stream) -> None:
        if stream in self._listeners:
            self._listeners.remove(stream)
        stream.end()

    def list(self, chosen: Filter) -> list[ListedInstance]:
        """Nearest first, then by name."""
        found = [known.listed for known in self._known.values() if known.listed and chosen.matches(known.listed)]
        return sorted(found, key=lambda each: (_distance(chosen.zone, each.zone), each.service, each.instance))

    def pick(self, chosen: Filter, strategy: str, key: str) -> ListedInstance | None:
        """One of the nearest that may be used now."""
        best = candidates(chosen.zone, self.list(chosen))
        self._turns += 1
        return choose(best, strategy, self._turns - 1, key) if best else None


def candidates(zone: str, instances: Iterable[ListedInstance]) -> list[ListedInstance]:
    """The nearest of the best tier that has any: an instance that may fail is better than none."""
    usable = [each for each in instances if each.status in _TIERS]
    if not usable:
        return []

    def rank(each: ListedInstance) -> tuple[int, int]:
        return _TIERS[each.status], _distance(zone, each.zone)

    best = min(map(rank, usable))
    return [each for each in usable if rank(each) == best]


def choose(among: list[ListedInstance], strategy: str, turn: int, key: str) -> ListedInstance:
    if strategy == "weighted":
        weights = [each.weight for each in among]
        return random.choices(among, weights)[0] if sum(weights) > 0 else random.choice(among)
    if strategy == "least-loaded":
        start = turn % len(among)
        return min(among[start:] + among[:start], key=lambda each: each.load)
    if strategy == "two-choices":
        return min(random.sample(among, min(2, len(among))), key=lambda each: each.load)
    if strategy == "hash":
        even = len({each.weight for each in among}) == 1
        hashed = hash_of(key)
        return max(among, key=lambda each: _score(draw(hash_of(f"{each.service}/{each.instance}"), hashed), each.weight, even))
    return among[turn % len(among)]


def _distance(zone: str, other: str) -> int:
    """The number of segments of ``zone`` that ``other`` does not share."""
    if zone in ("", other):
        return 0
    mine, theirs = zone.split("/"), other.split("/")
    shared = 0
    while shared < len(mine) and shared < len(theirs) and mine[shared] == theirs[shared]:
        shared += 1
    return len(mine) - shared


def _score(drawn: int, weight: int, even: bool) -> float:
    if even:
        return drawn
    return -1e12 + drawn / 0x1_0000_0000 if weight == 0 else math.log((drawn + 1) / 0x1_0000_0001) / weight
