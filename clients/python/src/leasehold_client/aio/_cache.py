"""Caches for asyncio."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Generic, TypeVar

from .._cache import CacheCore, CacheLease
from .._duration import Duration
from ._flow import run

if TYPE_CHECKING:
    from ._leases import Leases

V = TypeVar("V")


class Cache(Generic[V]):
    """As ``leasehold_client.cache.Cache``; ``load`` and ``save`` are coroutine functions."""

    def __init__(
        self,
        leases: Leases,
        prefix: str,
        *,
        load: Callable[[str, CacheLease], Awaitable[V]],
        save: Callable[[str, V, CacheLease], Awaitable[object]] | None = None,
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

    async def get(self, key: str) -> V:
        """The value of a key: from the cache, or loaded. Callers that ask at once share one load, and its error."""
        core, longest = self._cache.core, 0.0
        while True:
            cached, mine = await run(self._cache.look(key, longest))
            if not mine:
                return cached.value
            assert cached.held is not None
            began = core.now()
            try:
                value = await self._load(key, CacheLease(cached.held))
            except BaseException as error:
                self._cache.fail(key, cached, error)
                raise
            if self._cache.loaded(key, cached, value):
                return value
            longest = core.now() - began

    async def write(self, key: str, value: V, *, wait: Duration | None = None) -> None:
        """Saves the value once no process serves the old one any more. Waits until then, or for ``wait``; then raises ``TIMEOUT``.

        Without ``save``, write to the source before you call it: then all processes load the value anew.
        """
        await run(self._cache.begin_write(key))
        async with self._leases.request(self._cache.prefix + key, wait=wait, recall=True) as lease:
            if self._save is not None:
                await self._save(key, value, CacheLease(lease._held))

    async def close(self) -> None:
        """Releases the leases of all values. Further calls raise ``UNAVAILABLE``."""
        self._cache.close()

    async def __aenter__(self) -> Cache[V]:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()
