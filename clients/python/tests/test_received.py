"""Errors from servers of other versions, and from programs that are no server at all."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from leasehold_client import LeaseError
from leasehold_client._errors import LeaseLost
from leasehold_client._received import received_error
from leasehold_client._wording import plain_sentence, sentence


def test_a_known_reason_gives_the_sentence_of_this_client() -> None:
    facts = {"lease": 7}
    error = received_error("GONE", "as an older server says it", {"reason": "gone", **facts})
    assert (error.code, error.reason, error.facts) == ("GONE", "gone", facts)
    assert error.message == sentence("gone", facts) != "as an older server says it"


def test_an_unknown_reason_of_a_later_server_keeps_the_message_that_came() -> None:
    error = received_error("HELD", "jobs/a waits for the tide", {"reason": "low-tide", "depth": 3})
    assert (error.reason, error.message, error.facts) == ("low-tide", "jobs/a waits for the tide", {"depth": 3})


def test_without_a_message_an_unknown_reason_gives_a_plain_sentence() -> None:
    error = received_error("HELD", "", {"reason": "low-tide", "depth": 3, "ports": ["a", "b"]})
    assert error.message == "refused (HELD, low-tide): depth 3; ports a, b" == plain_sentence("HELD", "low-tide", error.facts)


def test_a_server_of_an_earlier_version_sends_no_reason() -> None:
    error = received_error("GONE", "lease 7 has ended", {"lease": 7})
    assert (error.reason, error.message, error.facts) == (None, "lease 7 has ended", {"lease": 7})


def test_a_known_reason_with_a_fact_missing_or_of_another_type_keeps_the_message_that_came() -> None:
    assert received_error("GONE", "it has ended", {"reason": "gone"}).message == "it has ended"
    for holders in ("ann", 5, ["ann", 1]):
        error = received_error("HELD", "it is reserved", {"reason": "pool-reserved", "pool": "gpu", "holders": holders})
        assert error.message == "it is reserved"


@pytest.mark.parametrize("rest", [None, 5, "text", ["a"], True, {"reason": 7}, {"reason": "Held by ann"}, {"reason": "a" * 65}])
def test_a_reason_and_facts_that_cannot_be_any_are_left_out(rest: Any) -> None:
    error = received_error("HELD", "k is held", rest)
    assert (error.reason, error.facts, error.message) == (None, {}, "k is held")


def test_facts_that_are_too_large_too_many_or_of_another_type_are_left_out() -> None:
    kept = {"text": "a", "number": 1, "flag": False, "names": ["a", "b"], "none": []}
    dropped = {
        "long": "x" * 4097,
        "list": [1] * 1025,
        "mixed": ["a", 1],
        "nested": {"a": 1},
        "nothing": None,
        "endless": float("inf"),
        "n" * 65: 1,
    }
    assert received_error("HELD", "k", {**kept, **dropped}).facts == kept
    assert len(received_error("HELD", "k", {f"f{i}": i for i in range(1000)}).facts) == 64


def test_the_reason_survives_pickling() -> None:
    for error in (
        LeaseError("HELD", "k", {"a": 1}, reason="held"),
        LeaseLost("LOST", "k", {"cause": "stall"}, reason="x"),
        LeaseError("GONE", "k"),
    ):
        copy = pickle.loads(pickle.dumps(error))
        assert (type(copy), copy.code, copy.reason, copy.facts) == (type(error), error.code, error.reason, error.facts)
