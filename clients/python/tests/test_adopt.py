"""Taking over a lease that was passed on to a name."""

from __future__ import annotations

import pytest

from leasehold_client import LeaseError
from leasehold_client.testing import World
from leasehold_client.testing._connection import Connection


def code_of(caught: pytest.ExceptionInfo[LeaseError]) -> str:
    return caught.value.code


def test_one_process_of_the_name_takes_over_what_was_passed_on(world: World) -> None:
    a, b, c = world.connect("a"), world.connect("crew"), world.connect("crew")
    first = a.acquire("k", ttl=10)
    number = first.transfer("crew")
    lease = b.adopt(number)
    assert lease.id == number and lease.resources == ("k",) and lease.token > first.token and lease.held
    with pytest.raises(LeaseError) as caught:
        c.adopt(number)
    assert code_of(caught) == "HELD"
    world.advance(60)
    assert lease.held and world.server.holder_of("k") == "crew"
    lease.release()
    assert world.server.holder_of("k") is None


def test_a_process_that_goes_on_with_its_former_incarnation_adopts_what_it_had_claimed(world: World) -> None:
    a, former = world.connect("a"), world.connect("crew")
    number = a.acquire("k", ttl=10).transfer("crew")
    lease = former.adopt(number)
    following = world.connect("crew", incarnation=former.incarnation)
    assert following.adopt(number).token == lease.token


def test_it_counts_from_the_renewal_after_the_claim(world: World) -> None:
    a, b = world.connect("a"), world.connect("crew")
    number = a.acquire("k", ttl=10).transfer("crew")
    world.advance(8)
    del world.server.commands[:]
    lease = b.adopt(number)
    assert lease.remaining() == pytest.approx(9.9, abs=0.01)
    assert [words[0] for words in world.server.commands if words[0] != "HELLO"] == ["LEASE.INFO", "LEASE.CLAIM", "LEASE.RENEW"]


def test_what_cannot_be_adopted_is_refused_with_the_reason(world: World) -> None:
    a, b = world.connect("a"), world.connect("crew")
    held = a.acquire("k", ttl=10)
    with pytest.raises(LeaseError, match="belongs to a") as caught:
        b.adopt(held.id)
    assert code_of(caught) == "INVALID"
    number = held.transfer("crew")
    kept = b.adopt(number)
    with pytest.raises(LeaseError, match="in use here"):
        b.adopt(number)
    kept.release()
    with pytest.raises(LeaseError) as caught:
        b.adopt(number)
    assert code_of(caught) == "GONE"
    for wrong in (0, True, "12"):
        with pytest.raises(LeaseError) as caught:
            b.adopt(wrong)  # type: ignore[arg-type]
        assert code_of(caught) == "INVALID"
    with pytest.raises(LeaseError, match="renew must be"):
        b.adopt(number, renew="never")


def test_the_first_lease_of_a_process_may_be_an_adopted_one(world: World) -> None:
    a, b = world.connect("a"), world.connect("crew")
    number = a.acquire("k", ttl=10).transfer("crew")
    adopting = b._core.do(lambda engine: engine.adopt(number, "half", None))
    with b.acquire("other"):
        assert adopting.result(0).held
    request = next(words for words in world.server.commands if words[:2] == ["LEASE.ACQUIRE", "other"])
    assert request[request.index("INCARNATION") + 1] == str(number)


def lose_answers_after_the_claim(world: World) -> None:
    """The claim is answered, and the renewal that follows is carried out without an answer."""
    claim = world.server._claim

    def claim_then_lose(connection: Connection, words: list[str]) -> object:
        world.lose_answers()
        return claim(connection, words)

    world.server._claim = claim_then_lose  # type: ignore[method-assign]


def test_what_was_claimed_for_a_caller_that_has_gone_is_given_back(world: World) -> None:
    a, b = world.connect("a"), world.connect("crew")
    number = a.acquire("k", ttl=10).transfer("crew")
    lose_answers_after_the_claim(world)
    adopting = b._core.do(lambda engine: engine.adopt(number, "half", None))
    assert world.server.commands[-1] == ["LEASE.RENEW", str(number)] and world.server.holder_of("k") == "crew"
    b._core.do(lambda engine: engine.cancel(adopting))
    world.answer()
    assert adopting.cancelled() and world.server.holder_of("k") is None


def test_an_answer_that_takes_longer_than_the_term_is_no_lease(world: World) -> None:
    a, b = world.connect("a"), world.connect("crew")
    number = a.acquire("k", ttl=10).transfer("crew")
    lose_answers_after_the_claim(world)
    adopting = b._core.do(lambda engine: engine.adopt(number, "half", None))
    world.advance(11)
    world.answer()
    assert isinstance(adopting.exception(), LeaseError) and not b._core.engine.renewals.held
