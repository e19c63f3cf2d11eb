"""Waiting for a grant: the place in the queue, outages, cancellation, and what may be trusted afterwards."""

from __future__ import annotations

import pytest

from leasehold_client import LeaseError
from leasehold_client._future import Cancelled, Future
from leasehold_client._held import Held
from leasehold_client._sync import Leases
from leasehold_client.testing import World


def begin(leases: Leases, name: str, **options: object) -> Future[Held]:
    """An acquire that is under way while the test does other things."""
    core = leases._core
    asked = core.asked("acquire", name, options, True)
    return core.do(lambda engine: engine.acquire(asked))


def asked(world: World, name: str) -> list[list[str]]:
    return [words for words in world.server.commands if words[0] == name]


def test_a_waiter_is_granted_when_the_holder_releases(world: World) -> None:
    a, b = world.connect("a"), world.connect("b")
    lease = a.acquire("k", ttl=10)
    waiting = begin(b, "k", ttl=10)
    world.advance(50)
    assert not waiting.done()
    lease.release()
    world.advance(0.1)
    assert waiting.result(0).held and world.server.holder_of("k") == "b"


def test_a_waiter_gets_what_is_passed_on_to_its_name(world: World) -> None:
    a, b = world.connect("a"), world.connect("crew")
    first = a.acquire("k", ttl=10)
    waiting = begin(b, "k", ttl=10)
    world.advance(1)
    number = first.transfer("crew")
    world.advance(0.1)
    lease = waiting.result(0)
    assert lease.id == number and lease.held and world.server.holder_of("k") == "crew"


def test_a_lease_that_was_waited_for_is_renewed_before_it_is_trusted(world: World) -> None:
    a, b = world.connect("a"), world.connect("b")
    lease = a.acquire("k", ttl=10)
    waiting = begin(b, "k", ttl=10)
    world.advance(5)
    del world.server.commands[:]
    world.lose_answers()
    core = a._core
    core.owner.post(lambda engine: engine.release(lease._held))
    world.advance(3)  # it is granted, and the news of it is on its way
    assert not waiting.done()
    world.answer()
    world.advance(0)
    assert ["LEASE.RENEW", str(waiting.result(0).id)] in world.server.commands
    assert waiting.result(0).remaining() == pytest.approx(9.9, abs=0.01)


def test_wait_ends_with_timeout_and_leaves_no_place_behind(world: World) -> None:
    a, b, c = world.connect("a"), world.connect("b"), world.connect("c")
    lease = a.acquire("k", ttl=10)
    with pytest.raises(LeaseError) as caught:
        b.acquire("k", wait=300)
    assert caught.value.code == "TIMEOUT" and caught.value.facts["waited"] == 300_000
    assert "within 5 min" in caught.value.message
    lease.release()
    second = c.try_acquire("k")
    assert second is not None


def test_a_cancelled_wait_gives_back_what_is_granted_meanwhile(world: World) -> None:
    a, b = world.connect("a"), world.connect("b")
    lease = a.acquire("k", ttl=10)
    waiting = begin(b, "k", ttl=10)
    world.lose_answers()
    a._core.owner.post(lambda engine: engine.release(lease._held))
    world.settle()
    assert world.server.holder_of("k") == "b"
    b._core.do(lambda engine: engine.cancel(waiting))
    world.answer()
    world.advance(1)
    assert waiting.cancelled() and world.server.holder_of("k") is None
    with pytest.raises(Cancelled):
        waiting.result(0)


def test_cancelling_after_the_grant_releases_it(world: World) -> None:
    leases = world.connect()
    waiting = begin(leases, "k")
    assert waiting.done()
    leases._core.do(lambda engine: engine.cancel(waiting))
    world.advance(1)
    assert world.server.holder_of("k") is None


def test_the_place_in_the_queue_is_told_when_it_changes(world: World) -> None:
    a, b, c = world.connect("a"), world.connect("b"), world.connect("c")
    places: list[int] = []
    first = a.acquire("k", ttl=10)
    second = begin(b, "k", ttl=10)
    third = begin(c, "k", ttl=10, on_wait=places.append)
    world.advance(5)
    first.release()
    world.advance(5)
    assert places == [1, 0]
    b._core.do(lambda engine: engine.release(second.result(0)))
    world.advance(1)
    assert third.result(0).held


def test_a_waiter_whose_connection_broke_queues_again(world: World) -> None:
    a, b = world.connect("a"), world.connect("b")
    lease = a.acquire("k", ttl=10)
    waiting = begin(b, "k", ttl=10)
    for _ in range(3):
        world.cut()
        world.advance(5)
    assert not waiting.done() and lease.held
    lease.release()
    world.advance(1)
    assert waiting.result(0).held
    operations = [words[words.index("OP") + 1] for words in asked(world, "LEASE.ACQUIRE")]
    assert len(operations) == len(set(operations))


def test_a_grant_whose_news_was_lost_with_the_connection_is_found(world: World) -> None:
    a, b = world.connect("a"), world.connect("b")
    lease = a.acquire("k", ttl=10)
    waiting = begin(b, "k", ttl=10)
    world.lose_answers()
    a._core.owner.post(lambda engine: engine.release(lease._held))
    world.settle()
    world.losing = False
    for owner in world._owners:
        if owner.connection is not None:
            owner.connection.out.clear()
        owner.cut()
    world.advance(1)
    assert waiting.result(0).held
    assert len(asked(world, "LEASE.ACQUIRE")) == 2  # it did not queue again


def test_a_wait_lasts_through_an_outage(world: World) -> None:
    leases = world.connect()
    leases.acquire("other").release()
    world.unreachable()
    waiting = begin(leases, "k")
    world.advance(120)
    assert not waiting.done()
    world.reach()
    world.advance(2)
    assert waiting.result(0).held


def test_a_wait_with_a_limit_says_that_no_server_answered(world: World) -> None:
    leases = world.connect()
    leases.acquire("other").release()
    world.unreachable()
    with pytest.raises(LeaseError) as caught:
        leases.acquire("k", wait=20)
    assert caught.value.code == "UNAVAILABLE" and "cannot be reached" in caught.value.message


def test_closing_ends_a_wait(world: World) -> None:
    a, b = world.connect("a"), world.connect("b")
    lease = a.acquire("k", ttl=10)
    waiting = begin(b, "k")
    b.close()
    with pytest.raises(LeaseError) as caught:
        waiting.result(0)
    assert caught.value.code == "UNAVAILABLE"
    lease.release()
    world.advance(1)
    assert world.server.holder_of("k") is None


def test_a_dead_connection_is_noticed_while_nothing_but_a_grant_is_awaited(world: World) -> None:
    a, b = world.connect("a"), world.connect("b")
    lease = a.acquire("k", ttl=60)
    waiting = begin(b, "k", ttl=60)
    owner = world._owners[1]
    assert owner.connection is not None
    dead = owner.connection
    dead.received = lambda data: None  # type: ignore[method-assign]
    world.lose_answers()
    a._core.owner.post(lambda engine: engine.release(lease._held))
    world.settle()
    dead.out.clear()
    world.answer()
    assert not waiting.done()
    world.advance(20)
    assert owner.connection is not dead
    assert waiting.result(0).held


def test_all_of_several_or_none(world: World) -> None:
    a, b = world.connect("a"), world.connect("b")
    one = a.acquire("k/1")
    assert b.try_acquire(["k/1", "k/2"]) is None
    assert world.server.holder_of("k/2") is None
    one.release()
    both = b.acquire(["k/1", "k/2"])
    assert set(both.tokens) == {"k/1", "k/2"} and both.token == both.tokens["k/1"]


def test_the_first_lease_decides_the_incarnation_of_all_that_follow(world: World) -> None:
    leases = world.connect()
    pending = [begin(leases, f"k/{i}") for i in range(5)]
    world.advance(0)
    numbers = [words[words.index("INCARNATION") + 1] if "INCARNATION" in words else None for words in asked(world, "LEASE.ACQUIRE")]
    assert numbers == [None, *[str(pending[0].result(0).id)] * 4]


def test_waits_that_ended_during_an_outage_are_not_asked_afterwards(world: World) -> None:
    leases = world.connect()
    leases.acquire("other").release()
    world.unreachable()
    for _ in range(5):
        with pytest.raises(LeaseError):
            leases.acquire("k", wait=2)
    del world.server.commands[:]
    world.reach()
    world.advance(5)
    assert asked(world, "LEASE.ACQUIRE") == []


def test_a_first_request_that_was_given_up_does_not_hold_up_the_next(world: World) -> None:
    world.unreachable()
    leases = world.connect()
    with pytest.raises(LeaseError):
        leases.acquire("k", wait=2)
    waiting = begin(leases, "k", wait=60)
    world.reach()
    world.advance(5)
    assert waiting.result(0).held
