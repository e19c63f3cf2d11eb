"""Histories of Python clients of a server that is killed are linearizable; and the checker finds histories that are not."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import time

import pytest

from .linearizability import NEVER, Call, linearizable
from .server_process import Server, needs_server


def test_the_checker_accepts_what_a_lock_may_do() -> None:
    assert linearizable([])
    assert linearizable([Call("acquire", 1, 0, 1), Call("held", 0, 2, 3), Call("release", 1, 4, 5), Call("acquire", 2, 6, 7)])
    # Calls that overlap may be in either order.
    assert linearizable([Call("acquire", 1, 0, 1), Call("release", 1, 2, 9), Call("acquire", 2, 3, 4)])
    assert linearizable([Call("acquire", 1, 0, 1), Call("held", 0, 2, 5), Call("release", 1, 3, 4)])
    # A release of unknown outcome may have happened, late or never.
    assert linearizable([Call("acquire", 1, 0, 1), Call("release", 1, 2, NEVER), Call("held", 0, 3, 4), Call("acquire", 2, 5, 6)])
    assert linearizable([Call("acquire", 1, 0, 1), Call("release", 1, 2, NEVER), Call("held", 0, 3, 4)])
    # A call that is under way may hold it for a moment, and give it back.
    assert linearizable([Call("held", 0, 1, 2), Call("acquire", 1, 0, 4)])
    assert linearizable([Call("attempt", 0, 0, 4), Call("held", 0, 1, 2)])


@pytest.mark.parametrize(
    "history",
    [
        [Call("acquire", 1, 0, 1), Call("acquire", 2, 2, 3)],
        [Call("acquire", 2, 0, 1), Call("release", 2, 2, 3), Call("acquire", 1, 4, 5)],
        [Call("acquire", 1, 0, 1), Call("release", 1, 2, 3), Call("held", 0, 4, 5)],
        [Call("held", 0, 0, 1), Call("acquire", 1, 2, 3)],
        [Call("acquire", 1, 0, 1), Call("acquire", 2, 2, 3), Call("release", 1, 4, NEVER)],
        [Call("acquire", 1, 0, 1), Call("release", 1, 2, 3), Call("acquire", 1, 4, 5)],
    ],
    ids=["two holders", "a token that is smaller", "held by no client", "held before it was granted", "released too late", "a token twice"],
)
def test_the_checker_finds_what_a_lock_may_not_do(history: list[Call]) -> None:
    assert not linearizable(history)


CLIENT = """
import json, random, sys, time, leasehold_client
url, path, seed, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
random.seed(seed)
with open(path, "w") as out, leasehold_client.connect(url, ttl=30) as leases:
    def note(*facts):
        print(json.dumps(facts), file=out, flush=True)
    for i in range(rounds):
        began = time.monotonic()
        try:
            if random.random() < 0.5:
                lease = leases.try_acquire("lock")
            else:
                lease = leases.acquire("lock", wait=60)
        except leasehold_client.LeaseError as error:
            note("attempt", 0, began, None if error.code == "UNKNOWN" else time.monotonic(), error.code)
            continue
        if lease is None:
            note("held", 0, began, time.monotonic(), "")
            time.sleep(random.random() / 50)
            continue
        acquired = time.monotonic()
        note("acquire", lease.token, began, acquired, "")
        time.sleep(random.random() / 100)
        if not lease.held:  # the server was away for longer than the ttl
            note("release", lease.token, acquired, None, "LOST")
            continue
        began = time.monotonic()
        try:
            lease.release()
        except leasehold_client.LeaseError as error:
            note("release", lease.token, began, None, error.code)
        else:
            note("release", lease.token, began, time.monotonic(), "")
"""


@needs_server
def test_clients_of_a_server_that_is_killed_again_and_again_see_one_lock(tmp_path: pathlib.Path) -> None:
    server = Server(f"file:{tmp_path}/leases.db")
    clients, kills, rounds = 4, 4, 40
    files = [tmp_path / f"history-{n}" for n in range(clients)]
    processes = [
        subprocess.Popen([sys.executable, "-c", CLIENT, server.url, str(file), str(n), str(rounds)]) for n, file in enumerate(files)
    ]

    def notes() -> list[list[object]]:
        return [
            json.loads(line) for file in files if file.exists() for line in file.read_text().splitlines(keepends=True) if line[-1] == "\n"
        ]

    try:
        for kill in range(1, kills + 1):
            # In the middle of the work, however fast the machine is: after another part of all calls.
            while len(notes()) < kill * clients * rounds // (kills + 1) and any(process.poll() is None for process in processes):
                time.sleep(0.02)
            server.kill()
            server.start()
        assert [process.wait(240) for process in processes] == [0] * clients
    finally:
        for process in processes:
            process.kill()
        server.kill()
    history = [
        Call(str(kind), int(str(token)), float(str(called)), NEVER if returned is None else float(str(returned)))
        for kind, token, called, returned, _ in notes()
    ]
    # Few calls fail: the client bridges an outage.
    assert {code for kind, _, _, _, code in notes() if kind == "attempt"} <= {"UNAVAILABLE", "UNKNOWN", "TIMEOUT"}
    assert sum(call.kind == "acquire" for call in history) > rounds
    assert linearizable(history)
