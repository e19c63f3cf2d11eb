"""Errors: one class for each code, what they show, and what a timeout says about the holder."""

from __future__ import annotations

import copy
import pickle
import re
from pathlib import Path

import pytest

import leasehold_client
from leasehold_client import Held, LeaseError, LeaseLost, Lost, Timeout
from leasehold_client.testing import World

REFERENCE = Path(__file__).resolve().parents[3] / "docs/reference/errors.md"
#: Only processes that open a store themselves get it.
NOT_FROM_SERVERS = {"UNCONFIRMED"}


def codes() -> list[str]:
    return [code for code in re.findall(r"^\| \[`([A-Z_]+)`\]", REFERENCE.read_text(), re.MULTILINE) if code not in NOT_FROM_SERVERS]


def test_every_code_of_the_reference_has_an_exported_class_of_its_own() -> None:
    kinds = {code: type(LeaseError(code, "text")) for code in codes()}
    assert len(kinds) == 15 and len(set(kinds.values())) == len(kinds)
    for kind in kinds.values():
        assert issubclass(kind, LeaseError) and kind is not LeaseError
        assert getattr(leasehold_client, kind.__name__) is kind and kind.__name__ in leasehold_client.__all__
    assert kinds["LOST"] is LeaseLost is Lost


def test_a_code_of_a_later_server_is_a_plain_lease_error() -> None:
    assert type(LeaseError("LATER", "text")) is LeaseError


def test_the_repr_has_the_code_the_facts_and_the_reason() -> None:
    error = LeaseError("HELD", "k is held", {"holder": "ann"}, reason="held")
    assert repr(error) == "Held('HELD', 'k is held', {'holder': 'ann'}, reason='held')"
    assert repr(LeaseError("GONE", "it has ended")) == "Gone('GONE', 'it has ended')"


@pytest.mark.parametrize("code", ["HELD", "LOST", "LATER"])
def test_a_copy_has_the_same_class_and_content(code: str) -> None:
    error = LeaseError(code, "text", {"lease": 7}, reason="why")
    for other in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert type(other) is type(error) and repr(other) == repr(error) and str(other) == str(error)


def test_errors_are_caught_by_their_class(world: World) -> None:
    a, b = world.connect("a"), world.connect("b")
    with a.acquire("k", entries={"name": ""}):
        with pytest.raises(Timeout):
            b.acquire("k", wait=1)
        with pytest.raises(Held):
            b.grant(entries={"name": ""})


def test_a_timeout_names_the_holders(world: World) -> None:
    world.connect("ann").acquire("k", mode="shared")
    world.connect("bob").acquire("k", mode="shared")
    with pytest.raises(Timeout, match=r"k was not granted within 5 s: it is held by ann, bob") as caught:
        world.connect("c").acquire("k", wait=5)
    assert caught.value.facts["holder"] == "ann" and caught.value.facts["holders"] == ["ann", "bob"]
    assert caught.value.facts["waited"] == 5000


def test_a_timeout_gives_up_its_place_before_it_looks_up_the_holder(world: World) -> None:
    a, b = world.connect("a"), world.connect("b")
    a.acquire("k")
    with pytest.raises(Timeout):
        b.acquire("k", wait=1)
    names = [words[0] for words in world.server.commands]
    assert names.index("LEASE.RELEASE") < names.index("LEASE.SHOW")


def test_a_timeout_without_an_answer_about_the_holder_comes_a_moment_later(world: World) -> None:
    a, b = world.connect("a"), world.connect("b")
    a.acquire("k", ttl=600)
    began = world.clock.read().monotonic
    core = b._core
    waiting = core.do(lambda engine: engine.acquire(core.asked("acquire", "k", {"wait": 5}, True)))
    world.advance(1)
    world.stop_answering()
    with pytest.raises(Timeout, match="still held") as caught:
        core.owner.wait(waiting)
    assert "holder" not in caught.value.facts
    assert world.clock.read().monotonic - began == pytest.approx(5.25, abs=0.01)
