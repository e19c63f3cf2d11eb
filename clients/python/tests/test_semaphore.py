"""Semaphores: permits that each request states."""

from __future__ import annotations

import asyncio

import pytest

import leasehold_client.aio
from leasehold_client import Invalid, Timeout
from leasehold_client.testing import World

from .server_process import Server, needs_server


def test_as_many_hold_it_as_there_are_permits(world: World) -> None:
    leases = [world.connect(name) for name in "abc"]
    first, second, third = (each.semaphore("downloads", permits=2, wait=5) for each in leases)
    with first.request() as one, second.request() as two:
        assert one.held and two.held
        assert third.try_acquire() is None
        with pytest.raises(Timeout):
            third.acquire()
    both = third.acquire(2)
    assert first.try_acquire() is None
    both.release()


def test_the_smallest_number_of_permits_counts(world: World) -> None:
    few, many = world.connect("few").semaphore("s", permits=2), world.connect("many").semaphore("s", permits=5)
    held = [many.acquire(), many.acquire(), many.acquire()]
    assert few.try_acquire() is None
    for lease in held[:2]:
        lease.release()
    few.acquire()
    assert many.try_acquire() is None


def test_a_semaphore_without_a_number_of_permits_is_refused(world: World) -> None:
    leases = world.connect()
    for permits in (0, -1, True, 1.5, None):
        with pytest.raises(Invalid, match="permits must be a whole number"):
            leases.semaphore("s", permits=permits)  # type: ignore[arg-type]
    with pytest.raises(Invalid, match="no option mode"):
        leases.semaphore("s", permits=2, mode="shared")


@needs_server
def test_a_real_server_keeps_to_the_permits(server: Server) -> None:
    async def play() -> None:
        async with leasehold_client.aio.connect(server.url, holder="a") as a, leasehold_client.aio.connect(server.url, holder="b") as b:
            first, second = a.semaphore("python/permits", permits=2), b.semaphore("python/permits", permits=3)
            async with first.request(), second.request():
                assert await second.try_acquire() is None
            assert await second.acquire(3) is not None

    asyncio.run(play())
