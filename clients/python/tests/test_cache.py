"""Caches."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

import pytest

import leasehold_client
from leasehold_client import Timeout, Unavailable
from leasehold_client.cache import Cache, CacheLease
from leasehold_client.testing import World

from .bounds import EVENT_TIMEOUT
from .server_process import Server, needs_server


class Source:
    """What is cached, and how often it was read."""

    def __init__(self) -> None:
        self.values = {"a": "1"}
        self.loads = 0
        self.shown = 0

    def load(self, key: str, lease: CacheLease) -> str:
        assert lease.held and lease.token > 0
        self.shown = max(self.shown, lease.token)
        self.loads += 1
        return self.values[key]

    def save(self, key: str, value: str, lease: CacheLease) -> None:
        assert lease.held and lease.token >= self.shown
        self.shown = lease.token
        self.values[key] = value


def cache_of(world: World, source: Source, holder: str, **options: Any) -> Cache[str]:
    return world.connect(holder).cache("config", load=source.load, save=source.save, **options)


def messages(world: World) -> int:
    return len(world.server.commands)


def test_a_value_is_loaded_once_and_served_without_a_message(world: World) -> None:
    source = Source()
    cache = cache_of(world, source, "a")
    assert cache.get("a") == "1"
    before = messages(world)
    assert [cache.get("a") for _ in range(100)] == ["1"] * 100
    assert source.loads == 1 and messages(world) == before


def test_a_write_is_seen_by_every_process_at_once(world: World) -> None:
    source = Source()
    caches = [cache_of(world, source, name) for name in "abc"]
    for number in range(2, 6):
        assert {cache.get("a") for cache in caches} == {source.values["a"]}
        caches[number % 3].write("a", str(number))
        assert [cache.get("a") for cache in caches] == [str(number)] * 3


def test_a_write_does_not_wait_for_readers_that_can_be_reached(world: World) -> None:
    source = Source()
    caches = [cache_of(world, source, name) for name in "abc"]
    began = world.clock.read().monotonic
    for number in range(2, 6):
        assert len({cache.get("a") for cache in caches}) == 1
        caches[0].write("a", str(number))
    assert world.clock.read().monotonic - began < 0.5


def test_a_write_waits_for_a_reader_that_cannot_be_reached_until_its_term_is_over(world: World) -> None:
    source = Source()
    a, b = cache_of(world, source, "a", ttl=60), cache_of(world, source, "b", ttl=60)
    assert a.get("a") == "1"
    world._owners[0].silent = True
    began = world.clock.read().monotonic
    b.write("a", "2")
    assert 50 < world.clock.read().monotonic - began < 61
    assert not any(each.held and each.held.held for each in a._cache._values.values())
    world.answer()
    assert a.get("a") == "2"


def test_a_write_that_waits_too_long_raises_timeout_and_changes_nothing(world: World) -> None:
    source = Source()
    a, b = cache_of(world, source, "a"), cache_of(world, source, "b")
    a.get("a")
    world._owners[0].silent = True
    with pytest.raises(Timeout):
        b.write("a", "2", wait=5)
    assert source.values["a"] == "1" and a.get("a") == "1"


def test_a_value_whose_lease_ran_out_while_it_was_loaded_is_loaded_again(world: World) -> None:
    source, took = Source(), [30.0, 0.0]
    leases = world.connect()

    def load(key: str, lease: CacheLease) -> str:
        world.advance(took.pop(0))
        return source.load(key, lease) if lease.held else "stale"

    cache = leases.cache("config", load=load, ttl=10)
    assert cache.get("a") == "1" and took == []


def test_a_value_whose_lease_ran_out_while_the_process_stood_still_is_not_served(world: World) -> None:
    source = Source()
    a, b = cache_of(world, source, "a", ttl=10), cache_of(world, source, "b", ttl=10)
    assert a.get("a") == "1"
    world.clock.move(11)  # no timer of a has fired yet
    world.server.tick()
    b.write("a", "2")
    assert a.get("a") == "2"


def test_a_load_that_fails_raises_and_nothing_is_cached(world: World) -> None:
    source = Source()
    cache = cache_of(world, source, "a")
    with pytest.raises(KeyError):
        cache.get("missing")
    source.values["missing"] = "there"
    assert cache.get("missing") == "there"


def test_a_value_that_runs_out_is_given_back_and_is_no_lost_lease(world: World) -> None:
    source = Source()
    cache = cache_of(world, source, "a", ttl=10)
    cache.get("a")
    world.advance(11)
    assert world.server.holder_of("config/a") is None and cache._cache._values == {}
    assert not any("LOST" in words for words in world.server.commands)
    cache.get("a")
    assert source.loads == 2


def test_no_more_values_are_kept_than_most_allows(world: World) -> None:
    source = Source()
    source.values = {str(number): str(number) for number in range(10)}
    cache = cache_of(world, source, "a", most=3)
    for key in ("0", "1", "2", "0", "3"):
        cache.get(key)
    assert list(cache._cache._values) == ["2", "0", "3"]
    assert world.server.holder_of("config/1") is None and world.server.holder_of("config/0") == "a"


def test_the_term_follows_the_ratio_of_reads_to_writes(world: World) -> None:
    cache = cache_of(world, Source(), "a", ttl="auto")
    for _ in range(60):
        cache.get("a")
        world.advance(1)
    assert 8 < cache.term < 11
    for number in range(200):
        cache.write("a", str(number))
        world.advance(0.1)
    assert cache.term == 0
    cache.get("a")
    assert world.server.holder_of("config/a") is None  # served, and not kept


def test_a_closed_cache_gives_everything_back(world: World) -> None:
    cache = cache_of(world, Source(), "a")
    with cache:
        cache.get("a")
    assert world.server.holder_of("config/a") is None
    with pytest.raises(Unavailable, match="is closed"):
        cache.get("a")


def test_recalls_that_were_missed_while_the_connection_was_away_do_no_harm(world: World) -> None:
    source = Source()
    a, b = cache_of(world, source, "a"), cache_of(world, source, "b")
    a.get("a")
    world._owners[0].cut()
    b.write("a", "2")
    assert a.get("a") == "2"


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 60))


def test_coroutines_that_ask_at_once_share_one_load_and_a_cancelled_one_leaves_it_to_the_others(world: World) -> None:
    async def main() -> None:
        loads, go = 0, asyncio.Event()

        async def load(key: str, lease: CacheLease) -> str:
            nonlocal loads
            loads += 1
            await go.wait()
            return "value"

        cache = world.connect_async().cache("config", load=load)
        first = asyncio.create_task(cache.get("a"))
        await world.advance_async(0.1)
        others = [asyncio.create_task(cache.get("a")) for _ in range(10)]
        await world.advance_async(0.1)
        assert loads == 1
        others.pop().cancel()
        first.cancel()
        await world.advance_async(0.1)
        assert loads == 2
        go.set()
        assert await world.until(asyncio.gather(*others)) == ["value"] * 9 and loads == 2
        await cache.write("a", "other")
        await cache.close()

    run(main())


@needs_server
def test_no_thread_reads_a_value_older_than_the_last_completed_write() -> None:
    server = Server()
    source: dict[str, int] = {"a": 0}
    completed, wrong = 0, []
    over = threading.Event()
    try:
        with leasehold_client.connect(server.url, holder="r") as r, leasehold_client.connect(server.url, holder="w") as w:

            def save(key: str, value: int, lease: CacheLease) -> None:
                source[key] = value

            reads = r.cache("n", load=lambda key, lease: source[key], save=save)
            writes = w.cache("n", load=lambda key, lease: source[key], save=save)

            def read() -> None:
                while not over.is_set():
                    least = completed
                    if reads.get("a") < least:
                        wrong.append(least)

            threads = [threading.Thread(target=read) for _ in range(4)]
            for thread in threads:
                thread.start()
            for number in range(1, 31):
                writes.write("a", number, wait=EVENT_TIMEOUT)
                completed = number
            over.set()
            for thread in threads:
                thread.join(EVENT_TIMEOUT)
            assert wrong == [] and reads.get("a") == 30 == writes.get("a")
    finally:
        over.set()
        server.kill()
