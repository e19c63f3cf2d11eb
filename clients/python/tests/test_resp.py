"""RESP 3 out of bytes, whole and in pieces, and bytes that are not RESP."""

from __future__ import annotations

import contextlib
import random
import time
from typing import Any

import pytest

from leasehold_client._errors import LeaseError
from leasehold_client._resp import MAX_DEPTH, Decoder, ProtocolError, Push, command
from leasehold_client.testing._connection import encode


def decode(data: bytes) -> list[Any]:
    return list(Decoder().feed(data))


def test_every_type_is_decoded() -> None:
    data = (
        b"+OK\r\n:-5\r\n$3\r\na\r\n\r\n*2\r\n:1\r\n_\r\n%1\r\n$1\r\nk\r\n#t\r\n,1.5\r\n(12345678901234567890\r\n~1\r\n:1\r\n$-1\r\n*0\r\n"
    )
    assert decode(data) == ["OK", -5, "a\r\n", [1, None], {"k": True}, 1.5, 12345678901234567890, [1], None, []]


def test_an_error_has_its_code_message_and_facts() -> None:
    (error,) = decode(b'-HELD jobs/nightly is held by ann\t{"holder":"ann"}\r\n')
    assert isinstance(error, LeaseError)
    assert (error.code, error.message, error.facts) == ("HELD", "jobs/nightly is held by ann", {"holder": "ann"})


def test_an_error_with_damaged_facts_keeps_its_code() -> None:
    (error,) = decode(b"-HELD x\t{[[[\r\n")
    assert (error.code, error.facts) == ("HELD", {})


def test_a_push_is_told_from_an_answer() -> None:
    assert decode(b">2\r\n+lease.granted\r\n:5\r\n:1\r\n") == [Push(["lease.granted", 5]), 1]


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_pieces_of_any_size_give_the_same_values(size: int) -> None:
    values: list[Any] = [{"lease": 5, "tokens": {"a": 1, "b": [1, 2, [3, None]]}}, "é" * 40, 7, [[]], {}]
    data = b"".join(encode(value) for value in values)
    decoder, out = Decoder(), []
    for start in range(0, len(data), size):
        out += list(decoder.feed(data[start : start + size]))
    assert out == values


def test_a_large_answer_in_small_pieces_is_scanned_once() -> None:
    def spent(items: int) -> float:
        data = encode(list(range(items)))
        decoder, out = Decoder(), []
        began = time.process_time()
        for start in range(0, len(data), 64):
            out += list(decoder.feed(data[start : start + 64]))
        assert out == [list(range(items))]
        return time.process_time() - began

    spent(1_000)
    small, large = spent(5_000), spent(40_000)
    # Eight times the bytes: eight times the work when it is linear, sixty-four times when it is not.
    assert large < max(0.02, small) * 32


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 400 Bad Request\r\n",
        b"\r\n",
        b"$5\r\nabcdefg\r\n",
        b"*99999999\r\n",
        b":1_000\r\n",
        b": 5\r\n",
        b":" + b"9" * 30 + b"\r\n",
        b"$99999999999\r\n",
        b",abc\r\n",
        b"%1\r\n*0\r\n:1\r\n",
        b"*1\r\n" * (MAX_DEPTH + 2),
        b"+" + b"x" * 100_000,
    ],
)
def test_bytes_that_are_not_resp_are_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode(data)


def test_random_bytes_give_values_or_a_protocol_error_and_nothing_else() -> None:
    dice = random.Random(7)
    alphabet = b"*$+-:%>#_,(~0123456789\r\n\t{}ab"
    for _ in range(2_000):
        data = bytes(dice.choice(alphabet) for _ in range(dice.randrange(60)))
        with contextlib.suppress(ProtocolError):
            decode(data)


def test_a_command_is_an_array_of_texts() -> None:
    assert command(["LEASE.RENEW", 12, "é"]) == b"*3\r\n$11\r\nLEASE.RENEW\r\n$2\r\n12\r\n$2\r\n\xc3\xa9\r\n"


def outcome_of(pieces: list[bytes]) -> list[Any] | str:
    decoder, out = Decoder(), []
    try:
        for piece in pieces:
            out += decoder.feed(piece)
    except ProtocolError:
        return "no RESP"
    return [(value.code, value.message) if isinstance(value, LeaseError) else value for value in out]


def test_a_whole_answer_is_decoded_as_its_bytes_one_by_one_are() -> None:
    dice = random.Random(7)
    texts = ["", "a", "lease", "a\r\nb", "\r\n", "é", "-1", "$3", "x" * 300]
    scalars: list[Any] = [0, 7, -1, 2**60, None, True, *texts]
    for _ in range(400):
        values: list[Any] = [
            dice.choice(
                [
                    dice.choice(scalars),
                    [dice.choice(scalars) for _ in range(dice.randrange(4))],
                    {dice.choice(texts): dice.choice(scalars) for _ in range(dice.randrange(4))},
                    {"nested": [dice.choice(scalars)]},
                ]
            )
            for _ in range(dice.randrange(1, 4))
        ]
        data = bytearray(b"".join(encode(value) for value in values))
        if dice.random() < 0.3:
            data[:0] = b">2\r\n$13\r\nlease.witness\r\n$1\r\nw\r\n"
        if dice.random() < 0.5:  # damaged, or cut off
            at = dice.randrange(len(data))
            data[at:] = dice.choice([b"", bytes(data[at + 1 :]), bytes([dice.randrange(256)]) + bytes(data[at + 1 :])])
        one_by_one = [bytes([byte]) for byte in data]
        assert outcome_of([bytes(data)]) == outcome_of(one_by_one), bytes(data)


@pytest.mark.parametrize("half", [b"$0\r\n", b"*1\r\n", b"%1\r\n$1\r\nk\r\n", b"$1\r\na", b"+OK\r"])
def test_half_an_answer_is_none(half: bytes) -> None:
    assert decode(half) == []
