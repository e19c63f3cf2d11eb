"""Caches for threads: values that are read under a shared lease, and never stale."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Generic, TypeVar

from ._cache import CacheCore, CacheLease
from ._duration import Duration
from ._flow import run

if TYPE_CHECKING:
    from ._sync import Leases

__all__ = ["Cache", "CacheLease"]

V = TypeVar("V")


class Cache(Generic[V]):
    """Values that are never stale. Get one from ``leases.cache(prefix, load=…)``; its methods may be called from any thread.

    >>> with leases.cache("config", load=lambda key, lease: db.read(key), save=lambda key, value, lease: db.write(key, value)) as config:
    ...     config.get("a")
    ...     config.write("a", "new")
    """

    def __init__(
        self,
        leases: Leases,
        prefix: str,
        *,
        load: Callable[[str, CacheLease], V],
        save: Callable[[str, V, CacheLease], object] | None = None,
        ttl: Duration = "1m",
        most: int = 10_000,
    ) -> None:
        self._leases = leases
        self._load = load
        self._save = save
        self._cache: CacheCore[V] = CacheCore(leases._core, prefix, ttl, most)

    @property
    def term(self) -> float:
        """The term that readers get now, in seconds; 0 when caching would cost more than it saves (``ttl="auto"``)."""
        return self._cache.term

    def get(self, key: str) -> V:
        """The value of a key: from the cache, or loaded. Callers that ask at once share one load, and its error."""
        core, longest = self._cache.core, 0.0
        while True:
            cached, mine = run(self._cache.look(key, longest), core.owner.wait)
            if not mine:
                return cached.value
            assert cached.held is not None
            began = core.now()
            try:
                value = self._load(key, CacheLease(cached.held))
            except BaseException as error:
                self._cache.fail(key, cached, error)
                raise
            if self._cache.loaded(key, cached, value):
                return value
            longest = core.now() - began

    def write(self, key: str, value: V, *, wait: Duration | None = None) -> None:
        """Saves the value once no process serves the old one any more. Waits until then, or for ``wait``; then raises ``TIMEOUT``.

        Without ``save``, write to the source before you call it: then all processes load the value anew.
        """
        run(self._cache.begin_write(key), self._cache.core.owner.wait)
        with self._leases.request(self._cache.prefix + key, wait=wait, recall=True) as lease:
            if self._save is not None:
                self._save(key, value, CacheLease(lease._held))

    def close(self) -> None:
        """Releases the leases of all values. Further calls raise ``UNAVAILABLE``."""
        self._cache.close()

    def __enter__(self) -> Cache[V]:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
