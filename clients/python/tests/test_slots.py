"""Numbered slots."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

import leasehold_client.aio
from leasehold_client import Invalid, Timeout
from leasehold_client._slots import Remembered, preferences
from leasehold_client.testing import World

from .server_process import Server, needs_server

PORTS = range(3000, 3004)


def entries(world: World, prefix: str) -> dict[str, str]:
    return {entry["key"]: entry["value"] for entry in world.connect("reader").entries(prefix)}


def test_each_holder_gets_a_number_of_its_own_the_lowest_first(world: World) -> None:
    leases = world.connect()
    slots = [leases.slot("ports", PORTS) for _ in PORTS]
    assert [slot.number for slot in slots] == list(PORTS)
    assert slots[0].resources == ("ports/3000",) and slots[1].token > slots[0].token
    assert leases.try_slot("ports", PORTS) is None
    with pytest.raises(Timeout):
        leases.slot("ports", PORTS, wait=5)
    slots[2].release()
    with leases.slot("ports", PORTS) as slot:
        assert slot.number == 3002 and slot.held
    assert not slot.held


def test_a_waiter_gets_the_number_that_becomes_free(world: World) -> None:
    a, b = world.connect("a"), world.connect("b")
    first = a.slot("ports", range(5, 6))
    engine = a._core.engine

    def release() -> None:
        engine.release(first._held)

    engine.timers.at(world.clock.read().monotonic + 3, release)
    assert b.slot("ports", range(5, 6), wait="1m").number == 5


def test_a_name_gets_the_number_again_that_it_had(world: World) -> None:
    numbers = range(3000, 3100)
    with world.connect("a").slot("ports", numbers, sticky="checkout") as slot:
        had = slot.number
    assert entries(world, "ports/sticky") == {"ports/sticky/checkout": str(had)}
    assert had != 3000  # the first choice follows a hash of the name
    with world.connect("b").slot("ports", numbers, sticky="checkout") as slot:
        assert slot.number == had
    slot = world.connect("c").slot("ports", numbers, sticky="checkout")
    assert world.connect("d").slot("ports", numbers, sticky="checkout").number != slot.number == had


def test_a_number_that_is_remembered_for_another_name_is_taken_last(world: World) -> None:
    others = [Remembered("other", number, 1) for number in (0, 2, 3, 5, 7)]
    assert set(preferences(range(8), "new", others)[:3]) == {1, 4, 6}
    assert preferences(range(8), "new", [*others, Remembered("new", 2, 1)])[0] == 2
    leases = world.connect()
    for number in (3000, 3001, 3003):
        with leases.slot("ports", range(number, number + 1), sticky=f"name-{number}"):
            pass
    assert leases.slot("ports", PORTS, sticky="new").number == 3002
    assert leases.slot("ports", PORTS, sticky="newer").number in (3000, 3001, 3003)


def test_a_number_is_remembered_for_a_time_after_its_last_use(world: World) -> None:
    leases = world.connect()
    with leases.slot("ports", PORTS, sticky="x", remember=timedelta(minutes=10)):
        world.advance(3600)
    assert len(entries(world, "ports/sticky")) == 1
    world.advance(5 * 60 - 10)
    assert len(entries(world, "ports/sticky")) == 1
    world.advance(6 * 60)
    assert entries(world, "ports/sticky") == {}


def test_repeated_use_leaves_one_record_and_closing_the_client_keeps_it(world: World) -> None:
    for _ in range(3):
        leases = world.connect("a")
        leases.slot("ports", PORTS, sticky="x").release()
        leases.close()
    assert len(entries(world, "ports/sticky")) == 1


def test_a_record_that_cannot_be_written_delays_the_number_by_two_seconds(world: World) -> None:
    leases = world.connect()
    core = leases._core
    original = core.owner.do
    began = world.clock.read().monotonic

    def do(work):  # type: ignore[no-untyped-def]
        if world.server.holder_of("ports/3000") is not None:
            world.silent = True
        return original(work)

    core.owner.do = do  # type: ignore[method-assign]
    assert leases.slot("ports", range(3000, 3001), sticky="x", ttl=60).number == 3000
    assert world.clock.read().monotonic - began == pytest.approx(2, abs=0.1)


def test_what_other_programs_wrote_is_no_number(world: World) -> None:
    leases = world.connect()
    leases.grant(entries={"ports/sticky/x": "many", "ports/sticky/y": "-1"})
    assert leases.slot("ports", PORTS, sticky="z").number in PORTS


def test_more_numbers_than_one_request_can_name(world: World) -> None:
    leases, numbers = world.connect(), range(0, 262)
    leases.acquire([f"n/{number}" for number in range(0, 252)])
    assert sorted(leases.slot("n", numbers).number for _ in range(10)) == list(range(252, 262))
    assert leases.try_slot("n", numbers) is None


def test_bad_ranges_and_options_are_refused(world: World) -> None:
    leases = world.connect()
    for numbers in (range(0), range(5, 3), range(0, 10, 2), range(-1, 3), range(0, 70_000), [1, 2], None):
        with pytest.raises(Invalid, match="slots are numbered by a range"):
            leases.slot("ports", numbers)  # type: ignore[arg-type]
    with pytest.raises(Invalid, match="slot has no option units"):
        leases.slot("ports", PORTS, units=2)
    with pytest.raises(Invalid, match="does not wait"):
        leases.try_slot("ports", PORTS, wait=3)


def test_the_order_is_that_of_the_typescript_library() -> None:
    # Computed with src/recipe/slots.ts.
    assert preferences(range(0, 8), "checkout-service", []) == TYPESCRIPT


TYPESCRIPT = [2, 6, 7, 5, 4, 0, 3, 1]


@needs_server
def test_slots_of_a_real_server() -> None:
    server = Server()
    try:
        with leasehold_client.connect(server.url, holder="a") as a:
            with a.slot("ports", PORTS, sticky="x") as slot:
                had = slot.number
                assert a.entries("ports/sticky")[0]["value"] == str(had)
            with a.slot("ports", PORTS, sticky="x") as slot:
                assert slot.number == had
            with pytest.raises(Invalid, match="cannot be remembered"):
                a.slot("ports", PORTS, sticky="x" * 5000)
            assert a.show(f"ports/{had}")["grants"] == []

        async def main() -> None:
            async with leasehold_client.aio.connect(server.url, holder="b") as b:
                async with await b.slot("ports", PORTS, sticky="x") as slot:
                    assert slot.number == had
                    others = [await b.slot("ports", PORTS) for _ in range(3)]
                    assert await b.try_slot("ports", PORTS) is None
                    assert {had, *(other.number for other in others)} == set(PORTS)
                many = await asyncio.gather(*(b.slot("many", range(300)) for _ in range(40)))
                assert len({slot.number for slot in many}) == 40

        asyncio.run(main())
    finally:
        server.kill()
