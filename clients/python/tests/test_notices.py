"""Notices about a lease that is still held, and its end by `max_hold`, in virtual time."""

from __future__ import annotations

import pytest

from leasehold_client import LeaseLost
from leasehold_client.testing import World


def test_a_lease_in_jeopardy_is_reported_once_while_there_is_time_to_stop(world: World) -> None:
    lease = world.connect().acquire("k", ttl=20)
    left: list[float] = []
    lease.on_jeopardy(left.append)
    world.advance(100)
    assert left == [] and not lease.at_risk
    world.stop_answering()
    while not lease.at_risk:
        assert left == [] and lease.held
        world.advance(0.25)
    assert len(left) == 1 and 4 < left[0] <= 5 and lease.at_risk and lease.held
    world.advance(6)
    assert len(left) == 1 and not lease.held and not lease.at_risk


@pytest.mark.parametrize("stalled", [15.5, 19.9, 30])
def test_a_jeopardy_is_not_reported_after_the_loss(world: World, stalled: float) -> None:
    lease = world.connect().acquire("k", ttl=20)
    left: list[float] = []
    lease.on_jeopardy(left.append)
    world.stop_answering()
    world.stall(stalled)
    world.advance(6)
    assert not lease.held and lease.lost.is_set()
    assert [4 < each < 5 for each in left] == ([True] if stalled < 19 else [])


def test_an_answered_renewal_ends_the_jeopardy_and_the_next_one_is_reported_again(world: World) -> None:
    lease = world.connect().acquire("k", ttl=20)
    left: list[float] = []
    lease.on_jeopardy(left.append)
    for _ in range(2):
        world.stop_answering()
        while not lease.at_risk:
            world.advance(0.25)
        world.answer()
        world.advance(20)
    assert len(left) == 2 and lease.held and not lease.at_risk
    late: list[float] = []
    world.stop_answering()
    while not lease.at_risk:
        world.advance(0.25)
    lease.on_jeopardy(late.append)
    world.advance(0.1)
    assert len(left) == 3 and len(late) == 1


def test_a_recalled_lease_stays_held_and_its_holder_knows(world: World) -> None:
    a, b = world.connect("a"), world.connect("b")
    lease = a.acquire("k", ttl=20)
    names: list[str] = []
    assert not lease.recalled.is_set()
    lease.on_recalled(names.append)
    b.recall("k")
    world.advance(0.1)
    assert lease.recalled.is_set() and names == ["b"] and lease.held
    later: list[str] = []
    lease.on_recalled(later.append)
    world.advance(0.1)
    assert later == ["b"]


def test_a_recall_before_anything_asked_for_it_is_found(world: World) -> None:
    a, b = world.connect("a"), world.connect("b")
    lease = a.acquire("k", ttl=20)
    b.recall("k")
    world.advance(1)
    event = lease.recalled
    world.advance(0.1)
    assert event.is_set()


def test_a_holder_that_watches_for_recalls_learns_at_once_that_its_lease_was_revoked(world: World) -> None:
    lease = world.connect("a").acquire("k", ttl=600)
    assert not lease.recalled.is_set()
    world.server.revoke(lease.id, "operator")
    world.advance(1)
    assert lease.lost.is_set()


def test_a_lease_is_lost_after_its_max_hold(world: World) -> None:
    a, b = world.connect("a"), world.connect("b")
    lease = a.acquire("k", ttl=10, max_hold=60)
    world.advance(59)
    assert lease.held
    world.advance(1.1)
    with pytest.raises(LeaseLost, match="held for 60 s, the limit set by max_hold") as lost:
        lease.assert_held()
    assert lost.value.facts["cause"] == "max-hold" and lost.value.facts["ms"] == 60_000
    assert b.try_acquire("k") is not None  # it was given back
