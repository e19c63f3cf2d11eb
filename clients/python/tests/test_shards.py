"""Shards. Whether both languages plan the same is shown by test/project/python-plans.test.ts."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Coroutine
from typing import Any

import pytest

import leasehold_client
from leasehold_client import Forbidden, Invalid, LeaseError
from leasehold_client.aio import Leases
from leasehold_client.aio._shards import Shard, Shards
from leasehold_client.testing import World

from .bounds import EVENT_TIMEOUT
from .server_process import Server, needs_server


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 120))


class Member:
    """One process of a group. Says which shards it works on, and notes when a shard has two workers."""

    def __init__(self, group: Group, name: str) -> None:
        self.group = group
        self.name = name
        self.leases: Leases = group.world.connect_async(name)
        self.owner = group.world._owners[-1]
        self.shards: Shards = self.leases.shards("orders", count=group.count, ttl=10, budget=group.budget)
        self.working: set[int] = set()
        self.task = asyncio.create_task(self.shards.join(self.work))

    async def work(self, shard: Shard) -> None:
        group = self.group
        for other in group.members:
            if other is not self and shard.index in other.working and other.alive:
                group.violations.append(f"{self.name} and {other.name} work on shard {shard.index}")
        if shard.token <= group.tokens.get(shard.index, 0):
            group.violations.append(f"the token of shard {shard.index} has not grown")
        group.tokens[shard.index] = shard.token
        self.working.add(shard.index)
        await shard.ended.wait()
        if group.stop_takes:
            await group.pause(group.stop_takes)
        self.working.discard(shard.index)

    alive = True

    def kill(self) -> None:
        """It falls silent for good. Its work ends with its leases."""
        self.alive = False
        self.owner.silent = True


class Group:
    def __init__(self, world: World, count: int, stop_takes: float = 0.0, budget: float | None = None) -> None:
        self.world = world
        self.count = count
        self.stop_takes = stop_takes
        self.budget = budget
        self.members: list[Member] = []
        self.tokens: dict[int, int] = {}
        self.violations: list[str] = []
        self.clock: Leases = world.connect_async("clock")

    def join(self, name: str) -> Member:
        self.members.append(Member(self, name))
        return self.members[-1]

    async def pause(self, seconds: float) -> None:
        from leasehold_client.aio._flow import outcome

        await outcome(self.clock._core.sleep(seconds))

    @property
    def living(self) -> list[Member]:
        return [member for member in self.members if member.alive and not member.task.done()]

    def assert_spread(self) -> None:
        """Every shard has one worker, and the members have the same number, or one more."""
        living = self.living
        assert sorted(index for member in living for index in member.working) == (list(range(self.count)) if living else [])
        sizes = [len(member.working) for member in living]
        assert max(sizes, default=0) - min(sizes, default=0) <= 1
        assert self.violations == []

    async def end(self) -> None:
        for member in self.living:
            member.shards.stop()
        await self.world.advance_async(30)
        for member in self.members:
            member.task.cancel()
        await self.world.advance_async(1)
        assert self.violations == []


def test_shards_are_spread_evenly_and_follow_members_that_join_and_leave(world: World) -> None:
    async def main() -> None:
        group = Group(world, 10)
        a = group.join("a")
        await world.advance_async(1)
        group.assert_spread()
        assert [shard.index for shard in a.shards.owned] == list(range(10))
        b, c = group.join("b"), group.join("c")
        await world.advance_async(2)
        group.assert_spread()
        assert await a.shards.owners() == [next(member.name for member in group.members if index in member.working) for index in range(10)]
        kept = {member.name: set(member.working) for member in (a, b)}
        c.shards.stop()
        await world.advance_async(2)
        assert c.task.done() and c.task.exception() is None and c.working == set()
        group.assert_spread()
        assert kept["a"] <= a.working and kept["b"] <= b.working
        await group.end()
        assert world.connect("reader").entries("shards") == []

    run(main())


def test_the_death_of_a_member_moves_only_its_shards_within_its_ttl(world: World) -> None:
    async def main() -> None:
        group = Group(world, 9)
        _, _, c = (group.join(name) for name in "abc")
        await world.advance_async(2)
        tokens = dict(group.tokens)
        dead = set(c.working)
        c.kill()
        await world.advance_async(11.5)
        group.assert_spread()
        assert {index for index in range(9) if group.tokens[index] != tokens[index]} == dead
        await group.end()

    run(main())


@pytest.mark.parametrize("seed", range(8))
def test_members_that_join_leave_die_and_stall_never_share_a_shard(world: World, seed: int) -> None:
    async def main() -> None:
        chance = random.Random(seed)
        group = Group(world, chance.randint(1, 12), stop_takes=chance.choice([0.0, 0.4, 3.0]))
        for number in range(12):
            what = chance.choice(["join", "join", "leave", "kill", "stall", "cut", "revoke"])
            living = group.living
            member = chance.choice(living) if living else None
            if what == "join" and len(living) < 6:
                group.join(f"m{number}")
            elif member is not None and what == "leave":
                member.shards.stop()
            elif member is not None and what == "kill":
                member.kill()
            elif member is not None and what == "stall":
                member.owner.silent = True
                await world.advance_async(chance.uniform(0.1, 15))
                member.owner.silent = False
            elif member is not None and what == "cut":
                member.owner.cut()
            elif what == "revoke":
                held = [held for each in living for held in each.leases._core.engine.renewals.held]
                if held:
                    world.server.revoke(chance.choice(held))
            await world.advance_async(chance.uniform(0.1, 15))
        await world.advance_async(60)
        group.assert_spread()
        await group.end()

    run(main())


def test_a_shard_whose_work_does_not_end_is_given_away_after_the_budget(world: World) -> None:
    async def main() -> None:
        group = Group(world, 2, stop_takes=100, budget=5)
        a = group.join("a")
        await world.advance_async(1)
        b = group.join("b")
        await world.advance_async(4)
        assert b.working == set()
        a.alive = False  # what it still does is its own affair
        await world.advance_async(2)
        assert len(b.working) == 1 and not group.violations
        for member in group.members:
            member.shards.stop()
        await world.advance_async(4)
        assert not b.task.done()
        await world.advance_async(4)
        assert a.task.done() and b.task.done() and world.server.holder_of("shards/orders/0") is None

    run(main())


def test_a_lost_shard_stays_frozen_until_its_work_has_ended_and_comes_back_with_a_new_token(world: World) -> None:
    async def main() -> None:
        group = Group(world, 1, stop_takes=3)
        a = group.join("a")
        await world.advance_async(1)
        (shard,) = a.shards.owned
        world.server.revoke(shard.lease.id)
        await world.advance_async(5.5)  # it learns of it with its next renewal
        assert shard.ended.is_set() and a.working == {0} and world.connect("x").try_acquire("shards/orders/0") is None
        await world.advance_async(6)
        (again,) = a.shards.owned
        assert again.token > shard.token and a.working == {0}
        await group.end()

    run(main())


def test_an_error_of_a_callback_ends_the_membership_and_is_raised(world: World) -> None:
    async def main() -> None:
        leases = world.connect_async("a")
        ended: list[int] = []

        async def fail(shard: Shard) -> None:
            if shard.index == 2:
                raise KeyError("of the callback")
            await shard.ended.wait()
            raise KeyError("after the end: no failure")

        async def revoked(shard: Shard) -> None:
            ended.append(shard.index)

        with pytest.raises(KeyError, match="of the callback"):
            await world.until(leases.shards("orders", count=4).join(fail, revoked))
        assert sorted(ended) == [0, 1, 2, 3]
        assert world.connect("x").entries("shards") == [] and world.server.holder_of("shards/orders/0") is None

        async def fine(shard: Shard) -> None: ...

        async def fail_at_the_end(shard: Shard) -> None:
            raise KeyError("of on_revoked")

        orders = leases.shards("orders", count=4)
        task = asyncio.create_task(orders.join(fine, fail_at_the_end))
        await world.advance_async(1)
        orders.stop()
        with pytest.raises(KeyError, match="of on_revoked"):
            await world.until(task)

        async def fail_when_told_to_end(shard: Shard) -> None:
            await shard.ended.wait()
            raise KeyError("after the end: no failure")

        orders = leases.shards("orders", count=4)
        task = asyncio.create_task(orders.join(fail_when_told_to_end))
        await world.advance_async(1)
        assert len(orders.owned) == 4
        orders.stop()
        await world.until(task)

    run(main())


def test_a_cancelled_join_gives_everything_back_first(world: World) -> None:
    async def main() -> None:
        group = Group(world, 3, stop_takes=2)
        a = group.join("a")
        await world.advance_async(1)
        a.task.cancel()
        await world.advance_async(1)
        assert not a.task.done() and world.server.holder_of("shards/orders/0") == "a"
        await world.advance_async(2)
        assert a.task.cancelled() and world.server.holder_of("shards/orders/0") is None

    run(main())


def test_closing_the_client_ends_join(world: World) -> None:
    async def main() -> None:
        group = Group(world, 3)
        a = group.join("a")
        await world.advance_async(1)
        await a.leases.close()
        await world.advance_async(1)
        error = a.task.exception()
        assert isinstance(error, LeaseError) and error.code == "UNAVAILABLE"

    run(main())


def test_bad_counts_are_refused(world: World) -> None:
    for count in (0, 4097, 1.5, True, None):
        with pytest.raises(Invalid, match="count must be a whole number from 1 to 4096"):
            world.connect().shards("orders", count=count)  # type: ignore[arg-type]


@needs_server
def test_threads_share_shards_of_a_real_server() -> None:
    server = Server()
    workers: dict[int, list[str]] = {index: [] for index in range(6)}
    twice: list[int] = []
    changed = threading.Condition()

    def work(name: str) -> Any:
        def on_assigned(shard: Any) -> None:
            with changed:
                workers[shard.index].append(name)
                if len(workers[shard.index]) > 1:
                    twice.append(shard.index)
                changed.notify_all()
            shard.ended.wait(EVENT_TIMEOUT)
            with changed:
                workers[shard.index].remove(name)
                changed.notify_all()

        return on_assigned

    def spread(*sizes: int) -> Any:
        def holds() -> bool:
            names = [name for found in workers.values() for name in found]
            return sorted(names.count(name) for name in set(names)) == sorted(sizes)

        return holds

    try:
        with leasehold_client.connect(server.url, holder="a") as a, leasehold_client.connect(server.url, holder="b") as b:
            first, second = a.shards("orders", count=6), b.shards("orders", count=6)
            threads = [threading.Thread(target=each.join, args=(work(name),)) for each, name in ((first, "a"), (second, "b"))]
            threads[0].start()
            with changed:
                assert changed.wait_for(spread(6), EVENT_TIMEOUT)
            threads[1].start()
            with changed:
                assert changed.wait_for(spread(3, 3), EVENT_TIMEOUT)
            assert sorted(first.owners()) == ["a"] * 3 + ["b"] * 3  # type: ignore[type-var]
            assert len(first.owned) == len(second.owned) == 3
            first.stop()
            with changed:
                assert changed.wait_for(spread(6), EVENT_TIMEOUT)
            second.stop()
            for thread in threads:
                thread.join(EVENT_TIMEOUT)
                assert not thread.is_alive()
            assert twice == [] and a.entries("shards") == []
    finally:
        server.kill()


def test_a_server_that_refuses_ends_join(world: World) -> None:
    async def main() -> None:
        leases = world.connect_async("a")
        world.server._entries = lambda connection, words: (_ for _ in ()).throw(LeaseError("FORBIDDEN", "no"))  # type: ignore[method-assign]

        async def work(shard: Shard) -> None: ...

        with pytest.raises(Forbidden):
            await world.until(leases.shards("orders", count=2).join(work))

    run(main())
