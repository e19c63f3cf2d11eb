"""What docs/clients.md says about answers, pushes and time, asked of a real server without a client."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from leasehold_client._resp import Decoder, Push, command

from .bounds import EVENT_TIMEOUT
from .server_process import Server, needs_server

pytestmark = needs_server


@pytest.fixture(scope="module")
def real() -> Iterator[Server]:
    server = Server()
    yield server
    server.kill()


class Wire:
    """One connection. ``pushes`` has what came between the answers."""

    def __init__(self, server: Server) -> None:
        self._socket = socket.create_connection(("127.0.0.1", server.port), EVENT_TIMEOUT)
        self._decoder = Decoder()
        self._answers: list[Any] = []
        self.pushes: list[list[Any]] = []

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def _read(self) -> None:
        data = self._socket.recv(65_536)
        assert data
        for value in self._decoder.feed(data):
            if isinstance(value, Push):
                self.pushes.append(value.items)
            else:
                self._answers.append(value)

    def send(self, *words: str | int) -> None:
        self._socket.sendall(command(words))

    def answer(self) -> Any:
        while not self._answers:
            self._read()
        return self._answers.pop(0)

    def ask(self, *words: str | int) -> Any:
        self.send(*words)
        return self.answer()

    def pushed(self, kind: str) -> list[Any]:
        while True:
            found = [items for items in self.pushes if items[0] == kind]
            if found:
                return found[-1]
            self._read()

    def greet(self) -> Wire:
        self.ask("HELLO", 3)
        return self

    def acquire(self, name: str, *more: str | int) -> Any:
        return self.ask("LEASE.ACQUIRE", name, "TTL", 20_000, "QUEUE", *more)


@pytest.fixture
def wire(real: Server) -> Iterator[Wire]:
    with Wire(real) as wire:
        yield wire.greet()


def test_a_grant_and_a_place_in_the_queue_are_told_apart_by_position(wire: Wire) -> None:
    granted = wire.acquire("wire/k", "HOLDER", "a")
    assert set(granted) == {"lease", "token", "ttl", "revision"} and granted["ttl"] == 20_000
    queued = wire.acquire("wire/k", "HOLDER", "b")
    assert set(queued) == {"lease", "position", "ttl", "revision"} and queued["position"] == 0 and queued["ttl"] == 20_000
    long = wire.ask("LEASE.ACQUIRE", "wire/k", "TTL", 60_000, "QUEUE")
    assert long["position"] == 1 and long["ttl"] == 30_000  # the first term, of a waiter as well
    both = wire.ask("LEASE.ACQUIRE", "wire/m", "wire/n", "TTL", 20_000)
    assert both["tokens"] == {"wire/m": both["token"], "wire/n": both["tokens"]["wire/n"]}


def test_the_push_of_a_grant_has_what_the_answer_of_one_has_and_the_tokens(wire: Wire) -> None:
    first = wire.acquire("wire/push", "HOLDER", "a")
    queued = wire.acquire("wire/push", "HOLDER", "b")
    wire.ask("LEASE.RELEASE", first["lease"])
    kind, lease, told = wire.pushed("lease.granted")
    assert kind == "lease.granted" and lease == queued["lease"] == told["lease"]
    assert set(told) == {"lease", "token", "ttl", "revision", "tokens", "waited"}
    assert told["tokens"] == {"wire/push": told["token"]} and told["token"] > first["token"] and told["waited"] == 1


def test_the_push_of_an_end_has_a_code_and_the_facts(wire: Wire) -> None:
    wire.acquire("wire/end", "HOLDER", "a")
    queued = wire.acquire("wire/end", "HOLDER", "b")
    wire.ask("LEASE.REVOKE", queued["lease"])
    kind, lease, told = wire.pushed("lease.withdrawn")
    assert kind == "lease.withdrawn" and lease == told["lease"] == queued["lease"]
    assert {"code", "message"} <= set(told)


def test_info_shows_a_holder_a_waiter_and_the_end(wire: Wire) -> None:
    held = wire.ask("LEASE.ACQUIRE", "wire/info", "TTL", 60_000, "HOLDER", "a", "ENTRY", "wire/e", "value", "LABEL", "why", "test")
    queued = wire.acquire("wire/info", "HOLDER", "b")
    told = wire.ask("LEASE.INFO", held["lease"], "CONSISTENT")
    everything = (
        "lease holder incarnation key ttl status since remaining grants wants entries labels parent children recalled expiresAt revision"
    )
    assert set(everything.split()) <= set(told)
    assert told["holder"] == "a" and told["status"] == "live" and told["incarnation"] == held["lease"] and told["wants"] == []
    assert told["ttl"] == 60_000 and held["ttl"] == 30_000 and told["remaining"] <= 30_000
    (grant,) = told["grants"]
    assert {"resource", "token", "units", "shared", "status"} <= set(grant) and grant["token"] == held["token"]
    assert told["entries"] == [{"key": "wire/e", "value": "value"}]
    waits = wire.ask("LEASE.INFO", queued["lease"], "CONSISTENT")
    assert waits["status"] == "waiting" and waits["grants"] == []
    assert [(want["resource"], want["position"]) for want in waits["wants"]] == [("wire/info", 0)]
    wire.ask("LEASE.RELEASE", held["lease"])
    assert wire.ask("LEASE.INFO", queued["lease"], "CONSISTENT")["status"] == "live"
    assert wire.ask("LEASE.INFO", held["lease"], "CONSISTENT") is None


def test_history_tells_why_a_lease_has_ended(wire: Wire) -> None:
    revoked = wire.acquire("wire/why", "HOLDER", "a")
    wire.ask("LEASE.REVOKE", "LEASE", revoked["lease"], "BY", "ann")
    assert wire.ask("LEASE.RENEW", revoked["lease"]) == [-1]
    wire.ask("LEASE.RELEASE", revoked["lease"])
    given_up = wire.acquire("wire/why", "HOLDER", "b")
    wire.ask("LEASE.RELEASE", given_up["lease"], "LOST", "suspend")
    passed_on = wire.acquire("wire/why", "HOLDER", "c")
    given = wire.ask("LEASE.TRANSFER", passed_on["lease"], "TO", "d", "STOPPED")
    stolen = wire.ask("LEASE.ACQUIRE", "wire/why", "TTL", 20_000, "HOLDER", "e", "QUEUE", "FORCE")
    assert "token" in stolen, stolen
    past = wire.ask("LEASE.HISTORY", "wire/why")
    assert [(each["lease"], each["cause"]) for each in past] == [
        (revoked["lease"], "revoked"),
        (given_up["lease"], "suspend"),
        (passed_on["lease"], "transferred"),
        (given, "stolen"),
    ]
    assert [each.get("by") for each in past] == ["ann", None, "d", "e"]


def test_a_repeated_acquire_has_the_first_answer_and_the_first_term(wire: Wire, real: Server) -> None:
    first = wire.acquire("wire/again", "OP", "wire:1")
    left, end = 20_000, time.monotonic() + EVENT_TIMEOUT
    while left > 19_800 and time.monotonic() < end:
        left = wire.ask("LEASE.INFO", first["lease"], "CONSISTENT")["remaining"]
    with Wire(real) as other:
        again = other.greet().acquire("wire/again", "OP", "wire:1")
        assert again["lease"] == first["lease"] and again["token"] == first["token"]
        assert other.ask("LEASE.INFO", first["lease"], "CONSISTENT")["remaining"] <= left <= 19_800


def test_a_greeting_and_a_request_may_be_sent_together(real: Server) -> None:
    with Wire(real) as wire:
        wire.send("HELLO", 3, "SETNAME", "x", "WITNESS", "")
        wire.send("LEASE.ACQUIRE", "wire/together", "TTL", 20_000, "QUEUE", "OP", "wire:2")
        greeting = wire.answer()
        assert greeting["server"] == "leasehold" and greeting["continues"] == 1 and greeting["witness"] != ""
        assert "token" in wire.answer()
        assert wire.pushes[0][0] == "lease.witness"


def test_one_push_shows_the_witness_before_the_answer_that_it_covers(real: Server) -> None:
    with Wire(real) as wire:
        wire.ask("HELLO", 3, "WITNESS", "")
        assert wire.pushes == []
        wire.acquire("wire/witness")
        assert [items[0] for items in wire.pushes] == ["lease.witness"] and len(wire.pushes[0]) == 2
