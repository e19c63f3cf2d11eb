"""A cache that is never stale, without regard to how its user waits: values are read under a shared lease, and a write waits until every
reader has released its lease or let it run out (Gray and Cheriton, 1989). Names and rules are those of the TypeScript library.

Promised: a served value is not older than the last write that was completed before. Not promised: that a write is quick while a reader is
unreachable, because it takes that reader's term. Writes that bypass ``write`` are not seen.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from ._core import Core
from ._duration import Duration, seconds
from ._engine import Engine
from ._errors import LeaseError
from ._flow import Ask, Flow
from ._future import Future
from ._held import Held

V = TypeVar("V")

#: The shortest and the longest term that ``"auto"`` chooses, and how many reads a term should serve.
SHORTEST, LONGEST, GAIN = 1.0, 60.0, 9
#: Rates are measured over about so many seconds.
WINDOW = 60.0


class CacheLease:
    """What ``load`` and ``save`` get of the lease they run under: ``token`` fences the source, ``held`` says whether to go on."""

    __slots__ = ("_held",)

    def __init__(self, held: Held) -> None:
        self._held = held

    @property
    def token(self) -> int:
        """Greater than that of every earlier reader or writer of the key."""
        return next(iter(self._held.tokens.values()), 0)

    @property
    def held(self) -> bool:
        """Asks the clocks."""
        return self._held.held


class CachedValue(Generic[V]):
    """A key's value, or the load that is under way. Used with the engine's lock held, but for ``value``."""

    __slots__ = ("done", "dropped", "failed", "held", "value")

    def __init__(self) -> None:
        self.held: Held | None = None
        self.value: V
        #: Done when there is a value, or none will come: then ``failed`` says why, or nothing if its caller has gone.
        self.done: Future[None] = Future()
        self.failed: BaseException | None = None
        self.dropped = False


class CacheCore(Generic[V]):
    """What the sync and asyncio forms of a cache share. They run ``load`` and ``save`` between its steps."""

    def __init__(self, core: Core, prefix: str, ttl: Duration, most: int) -> None:
        if most < 1:
            raise LeaseError("INVALID", f"most must be at least 1, not {most}", {"option": "most"})
        self.core = core
        self.prefix = prefix if prefix.endswith("/") else f"{prefix}/"
        self._ttl = None if ttl == "auto" else seconds(ttl, "ttl")
        self._most = most
        self._values: dict[str, CachedValue[V]] = {}
        self._closed = False
        self._watched = False
        self._begun: Future[int] | None = None
        self._sharers = 1.0
        self._reads, self._writes = Rate(core.now()), Rate(core.now())

    @property
    def term(self) -> float:
        """The term that readers get now, in seconds; 0 when caching would cost more than it saves."""
        if self._ttl is not None:
            return self._ttl
        now = self.core.now()
        reads, writes = self._reads.per_second(now), self._writes.per_second(now)
        if writes > 0 and 2 * reads / (self._sharers * writes) <= 1:
            return 0.0
        return SHORTEST if reads == 0 else min(LONGEST, max(SHORTEST, GAIN / reads))

    def must_be_open(self) -> None:
        if self._closed:
            raise LeaseError("UNAVAILABLE", f"the cache of {self.prefix} is closed")

    # Reading. ``look`` gives a value to serve, or one that its caller must load: it has a lease and no value yet.

    def look(self, key: str, longest: float) -> Flow[tuple[CachedValue[V], bool]]:
        """A value, and whether the caller must load it. If loading took ``longest``, a shorter term would always be over before."""
        counted = False
        while True:
            self.must_be_open()
            if not self._watched:
                yield Ask(self.core.owner, self._watch)
            first, counted = not counted, True
            cached, mine, served = self.core.do(lambda engine, first=first: self._of(engine, key, first))  # type: ignore[misc]
            if served:
                return cached, False
            if not mine:
                yield from self._other(cached)
                if cached.failed is not None:
                    raise cached.failed
                if not cached.dropped and cached.held is not None and not cached.held.held:
                    self.drop(key, cached)
                continue
            try:
                ttl = max(self.term, SHORTEST, 2 * longest)
                asked = self.core.asked("get", self.prefix + key, {"mode": "shared", "ttl": ttl, "renew": "on-activity"}, True)
                held = yield from self.core.obtain(asked._replace(holding=()))
            except BaseException as error:
                self.fail(key, cached, error)
                raise
            self.core.do(lambda engine, cached=cached, held=held: self._granted(engine, key, cached, held))  # type: ignore[misc]
            if not cached.dropped:
                return cached, True
            self.fail(key, cached)  # a writer came first: ask again, and wait for it

    def _of(self, engine: Engine, key: str, first: bool) -> tuple[CachedValue[V], bool, bool]:
        """The value of a key, whether this caller has to load it, and whether it is served at once."""
        if first:
            self._reads.count(self.core.now())
        cached = self._values.get(key)
        if cached is None:
            cached = self._values[key] = CachedValue()
            if len(self._values) > self._most:
                oldest, dropped = next(iter(self._values.items()))
                self._drop_now(engine, oldest, dropped)
            return cached, True, False
        # If its lease is held now, no write has been completed since it was loaded.
        served = cached.done.done() and cached.failed is None and cached.held is not None and cached.held.held
        if served:
            self._served(engine, key, cached)
        return cached, False, served

    def _granted(self, engine: Engine, key: str, cached: CachedValue[V], held: Held) -> None:
        cached.held = held
        if cached.dropped:
            engine.release(held)
            return
        # Given back just before it is over: a value that nobody reads is no lost lease.
        now = engine.clock.read()
        engine.timers.at(now.monotonic + 0.99 * held.deadline.until(now), lambda: self._drop_now(engine, key, cached))
        held.when_over(lambda: self._forget(key, cached))

    def _other(self, cached: CachedValue[V]) -> Flow[None]:
        """Waits for the load of another caller. A caller that is cancelled leaves the load alone."""
        if cached.done.done():
            return
        mine: Future[None] = Future()
        cached.done.add_done_callback(lambda done: mine.set_result(None))
        yield mine

    def loaded(self, key: str, cached: CachedValue[V], value: V) -> bool:
        """False: its lease is over, and a write may have been completed since. Load again."""
        cached.value = value
        held = cached.held
        assert held is not None
        cached.done.set_result(None)
        if held.held and not cached.dropped:
            self.core.do(lambda engine: self._served(engine, key, cached))
            return True
        self.drop(key, cached)
        return False

    def fail(self, key: str, cached: CachedValue[V], error: BaseException | None = None) -> None:
        """Nothing is cached. Other callers that wait get an ``Exception``; after an interrupt or a cancellation they load it themselves."""
        if isinstance(error, Exception):
            cached.failed = error
        self.drop(key, cached)
        cached.done.set_result(None)

    def _served(self, engine: Engine, key: str, cached: CachedValue[V]) -> None:
        if self.term == 0:
            self._drop_now(engine, key, cached)
        elif self._values.get(key) is cached:
            del self._values[key]  # to the end: most recently used
            self._values[key] = cached

    def _forget(self, key: str, cached: CachedValue[V]) -> None:
        cached.dropped = True
        if self._values.get(key) is cached:
            del self._values[key]

    def drop(self, key: str, cached: CachedValue[V]) -> None:
        self.core.owner.post(lambda engine: self._drop_now(engine, key, cached))
        self._forget(key, cached)

    def _drop_now(self, engine: Engine, key: str, cached: CachedValue[V]) -> None:
        self._forget(key, cached)
        if cached.held is not None:
            engine.release(cached.held)  # an undelivered release lapses by itself

    # Recalls

    def _watch(self, engine: Engine) -> Future[None]:
        """One watch for all keys, from before the first lease: no recall is missed. Each caller waits with a future of its own."""
        if self._begun is None:
            self._begun = engine.watches.begin(self.prefix.rstrip("/"), self._told)
            self._begun.add_done_callback(self._watch_begun)
        mine: Future[None] = Future()

        def settle(begun: Future[int]) -> None:
            error = begun.exception()
            if error is None or self._watched:
                mine.set_result(None)
            else:
                mine.set_exception(error)

        self._begun.add_done_callback(settle)
        return mine

    def _watch_begun(self, begun: Future[int]) -> None:
        error = begun.exception()
        # A key that may not watch is told of no recall: its values run out by themselves.
        self._watched = error is None or (isinstance(error, LeaseError) and error.code == "FORBIDDEN")
        if not self._watched:
            self._begun = None

    def _told(self, events: list[dict[str, Any]]) -> None:
        engine = self.core.engine
        kind = events[0].get("type") if events else None
        if kind in ("ended", "closed"):
            # Recalls are not reported any more: cached values run out by themselves, and the next read starts a new watch.
            self._watched, self._begun = False, None
        if kind in ("resync", "ended", "closed"):
            return self._drop_all(engine)
        for event in events:
            if event.get("type") != "recalled":
                continue
            key = str(event.get("resource", ""))[len(self.prefix) :]
            cached = self._values.get(key)
            if cached is not None:
                # One whose lease is still asked for may have been granted before the recall: it is dropped as well, and loaded again.
                self._drop_now(engine, key, cached)

    def _drop_all(self, engine: Engine) -> None:
        for key, cached in list(self._values.items()):
            self._drop_now(engine, key, cached)

    # Writing

    def begin_write(self, key: str) -> Flow[None]:
        """Before the lease of a writer is asked for: it must not wait for its own process."""
        self.must_be_open()
        self.core.do(lambda engine: self._writing(engine, key))
        if self._ttl is None:
            shown = yield self.core.read("LEASE.SHOW", self.prefix + key)
            self._sharers = (self._sharers + max(1, len(shown.get("grants", [])))) / 2

    def _writing(self, engine: Engine, key: str) -> None:
        self._writes.count(self.core.now())
        own = self._values.get(key)
        if own is not None:
            self._drop_now(engine, key, own)

    def close(self) -> None:
        """Releases the leases of all values. Further calls raise ``UNAVAILABLE``."""
        if self._closed:
            return
        self._closed = True

        def end(engine: Engine) -> None:
            engine.watches.end(self.prefix.rstrip("/"), self._told)
            self._drop_all(engine)

        self.core.owner.post(end)


class Rate:
    """Measures how often something happened recently."""

    def __init__(self, now: float) -> None:
        self._began = now
        self._counted = 0.0

    def count(self, now: float) -> None:
        self._counted += 1
        passed = now - self._began
        if passed >= 2 * WINDOW:
            # Half of the count, for half of the time.
            self._began = now - passed / 2
            self._counted /= 2

    def per_second(self, now: float) -> float:
        return self._counted / max(0.001, now - self._began)
