"""A ttl that is a preference, and a process that is answered with the lease it has."""

from __future__ import annotations

from typing import Any

import pytest

import leasehold_client
from leasehold_client import LeaseError, Ttl
from leasehold_client.testing import World

from .server_process import Server, needs_server


def last(world: World) -> list[str]:
    return [words for words in world.server.commands if words[0] == "LEASE.ACQUIRE"][-1]


def test_a_ttl_with_limits_is_sent_with_them(world: World) -> None:
    leases = world.connect()
    leases.acquire("a", ttl=Ttl("1m", min="10s", max=90))
    words = last(world)
    assert [words[words.index(word) + 1] for word in ("TTL", "TTLMIN", "TTLMAX")] == ["60000", "10000", "90000"]
    leases.acquire("b", ttl=Ttl(60, min=10))
    assert "TTLMIN" in last(world) and "TTLMAX" not in last(world)
    assert leases.acquire("c", ttl=20).ttl == 20 and "TTLMIN" not in last(world)


@pytest.mark.parametrize("ttl", [Ttl(5, min=6), Ttl(5, max=4), Ttl("x"), Ttl(5, min="y"), Ttl(None)])  # type: ignore[arg-type]
def test_limits_that_make_no_sense_are_refused(world: World, ttl: Any) -> None:
    with pytest.raises(LeaseError) as caught:
        world.connect().acquire("k", ttl=ttl)
    assert caught.value.code == "INVALID" and not world.server.commands


def test_reuse_answers_with_the_lease_that_the_process_has(world: World) -> None:
    leases = world.connect()
    first = leases.acquire(["a", "b"], ttl=10, reuse=True)
    assert "REUSE" not in last(world)  # it has none yet, and no number
    world.advance(1)
    again = leases.acquire(["b", "a"], ttl=10, reuse=True)
    assert "REUSE" in last(world) and (again.id, again.tokens) == (first.id, first.tokens)
    assert again.remaining() == pytest.approx(9.9, abs=0.001)
    # Without it, and for other names, it waits for itself.
    assert leases.try_acquire(["a", "b"]) is None
    assert leases.try_acquire("a", reuse=True) is None
    again.release()
    assert not first.held and world.server.holder_of("a") is None


def test_a_caller_that_goes_away_leaves_the_lease_to_the_other(world: World) -> None:
    leases = world.connect()
    first = leases.acquire("k", reuse=True)
    core = leases._core
    request = core.asked("acquire", "k", {"reuse": True}, True)
    future = core.do(lambda engine: engine.acquire(request))
    assert future.result().id == first.id
    core.do(lambda engine: engine.cancel(future))
    assert first.held and world.server.holder_of("k") == "test"


def test_a_lease_that_is_over_here_is_not_reused(world: World) -> None:
    leases = world.connect()
    first = leases.acquire("k", ttl=10, reuse=True)
    world.stop_answering()
    core = leases._core
    request = core.asked("try_acquire", "k", {"ttl": 10, "reuse": True}, False)
    future = core.do(lambda engine: engine.acquire(request))
    world.advance(9.95)
    assert not first.held
    world.answer()
    world.advance(1)
    assert future.exception() is not None or future.result().id != first.id
    assert not first.held


def test_a_process_that_was_started_again_goes_on_with_its_lease(world: World) -> None:
    former = world.connect("reporter")
    lease = former.acquire("k", ttl=30)
    number = former.incarnation
    assert number is not None
    following = world.connect("reporter", incarnation=number)
    again = following.acquire("k", ttl=30, reuse=True)
    assert (again.id, again.token, again.held) == (lease.id, lease.token, True)
    assert world.connect("reporter").try_acquire("k", reuse=True) is None


def test_reuse_needs_names(world: World) -> None:
    leases = world.connect()
    with pytest.raises(LeaseError, match="reuse needs resources"):
        leases.grant(reuse=True)
    with pytest.raises(LeaseError, match="reuse needs resources"):
        leases.acquire(["a", "b"], any=1, reuse=True)
    with pytest.raises(LeaseError):
        leasehold_client.connect("leasehold://127.0.0.1:1", incarnation=0)


@needs_server
def test_a_real_server_adjusts_a_ttl_and_knows_its_holder_again() -> None:
    server = Server()
    try:
        with leasehold_client.connect(server.url, holder="reporter") as leases:
            core = leases._core
            core.owner.wait(core.do(lambda engine: engine.call("LEASE.POLICY", "SET", "jobs", "ttlMin", "5000", "ttlMax", "20000")))
            lease = leases.acquire("jobs/a", ttl=Ttl("1m", min="1s"))
            assert lease.ttl == 20
            assert leases.acquire("jobs/b", ttl=Ttl(1, max=9)).ttl == 5
            with pytest.raises(LeaseError) as caught:
                leases.acquire("jobs/c", ttl=Ttl("1m", min="30s"))
            assert caught.value.code == "INVALID" and "no ttl fits" in caught.value.message
            again = leases.acquire("jobs/a", ttl=Ttl("1m", min="1s"), reuse=True)
            assert (again.id, again.token) == (lease.id, lease.token)
            with leasehold_client.connect(server.url, holder="reporter", incarnation=leases.incarnation) as following:
                taken = following.acquire("jobs/a", ttl=20, reuse=True)
                assert (taken.id, taken.token) == (lease.id, lease.token)
                taken.release()
            assert leases.try_acquire("jobs/a", ttl=20) is not None
    finally:
        server.kill()
