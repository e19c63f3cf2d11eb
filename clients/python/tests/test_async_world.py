"""The test kit for asyncio."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any

import pytest

from leasehold_client import LeaseLost, Timeout
from leasehold_client.testing import World


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 30))


def test_a_coroutine_stops_when_its_lease_is_lost(world: World) -> None:
    async def main() -> None:
        leases = world.connect_async()
        told: list[str] = []
        async with await leases.acquire("jobs/nightly", ttl=10) as lease:
            lease.on_lost(lambda reason: told.append(reason.cause))
            waits = asyncio.create_task(lease.lost.wait())
            world.stop_answering()
            await world.advance_async(9)
            assert not waits.done() and lease.held
            await world.advance_async(1)
            assert waits.done() and told == ["unreachable"]
            with pytest.raises(LeaseLost):
                lease.assert_held()
        await leases.close()

    run(main())


def test_a_waiter_is_granted_in_virtual_time(world: World) -> None:
    async def main() -> None:
        a, b = world.connect_async("a"), world.connect_async("b")
        first = await a.acquire("k", ttl=600, max_hold=3600)
        began, real = world.clock.read().monotonic, time.monotonic()
        lease = await world.until(b.acquire("k"))
        assert lease.held and not first.held
        assert world.clock.read().monotonic - began == pytest.approx(3600, abs=1)
        assert time.monotonic() - real < 3600

    run(main())


def test_a_timeout_comes_at_its_moment(world: World) -> None:
    async def main() -> None:
        a, b = world.connect_async("a"), world.connect_async("b")
        await a.acquire("k")
        began = world.clock.read().monotonic
        with pytest.raises(Timeout, match="held by a"):
            await world.until(b.acquire("k", wait=60))
        assert world.clock.read().monotonic - began == pytest.approx(60)

    run(main())


def test_tasks_go_on_at_the_moment_of_their_event(world: World) -> None:
    async def main() -> None:
        leases = [world.connect_async(f"c{i}") for i in range(3)]
        began, seen = world.clock.read().monotonic, []

        async def work(i: int) -> None:
            async with leases[i].request("k", max_hold=10 * (i + 1)) as lease:
                await lease.lost.wait()
                seen.append((i, round(world.clock.read().monotonic - began)))

        tasks = asyncio.gather(*(work(i) for i in range(3)))
        await world.advance_async(100)
        await tasks
        assert seen == [(0, 10), (1, 30), (2, 60)]

    run(main())


def test_a_wait_that_nothing_can_end_is_an_error(world: World) -> None:
    async def main() -> None:
        never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with pytest.raises(RuntimeError, match="would wait for ever"):
            await world.until(never)
        assert never.cancelled()

    run(main())


def test_a_cancelled_wait_leaves_no_place_behind(world: World) -> None:
    async def main() -> None:
        a, b = world.connect_async("a"), world.connect_async("b")
        lease = await a.acquire("k")
        task = asyncio.create_task(b.acquire("k"))
        await world.advance_async(5)
        task.cancel()
        await world.advance_async(1)
        assert task.cancelled() and (await a.show("k"))["queue"] == []
        await lease.release()
        assert await b.try_acquire("k") is not None

    run(main())


def test_an_exclusive_coroutine_function_is_a_coroutine_function(world: World) -> None:
    async def main() -> None:
        leases = world.connect_async()

        @leases.exclusive("k")
        async def work(number: int) -> int:
            assert world.server.holder_of("k") == "test"
            return number + 1

        # Checked by mypy as well: create_task takes coroutines only.
        task: asyncio.Task[int] = asyncio.create_task(work(1))
        assert await world.until(task) == 2 and world.server.holder_of("k") is None

    run(main())
