"""The Python part of `npm run bench -- python`: measures, and prints its numbers as one line of JSON.

python.py pairs LEASEHOLD_URL REDIS_PORT: an uncontended acquire and release, beside SET NX PX and a compare-and-delete of redis-py, and
beside the same commands over a bare socket.
python.py clients PORT: the same calls against a server that answers both at once and does nothing (python-echo.mjs): what the clients
take, in wall-clock and in CPU time.
python.py renew LEASEHOLD_URL COUNT SECONDS: what renewing COUNT leases costs.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import leasehold_client
import leasehold_client.aio
from leasehold_client._resp import command

RELEASE = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"
TURNS, ROUNDS = int(os.environ.get("TURNS", "60")), 25


def turn(each: Callable[[int], None], first: int) -> float:
    """Microseconds per round of one turn."""
    began = time.perf_counter()
    for i in range(first, first + ROUNDS):
        each(i)
    return (time.perf_counter() - began) / ROUNDS * 1e6


async def connected(url: str) -> leasehold_client.aio.Leases:
    return leasehold_client.aio.connect(url, ttl=30)


def bare_socket(url: str) -> Callable[..., bytes]:
    """Asks the server without a client: what remains is the server's part, and that of the kernel."""
    address = urlsplit(url)
    connection = socket.create_connection((address.hostname, address.port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(*words: str | int) -> bytes:
        connection.sendall(command(words))
        return connection.recv(65_536)

    return ask


def pairs(url: str, port: int) -> dict[str, float]:
    import redis

    client = redis.Redis(port=port)
    script = client.script_load(RELEASE)

    def bare(i: int) -> None:
        key, token = f"lock:{i % 16}", str(i)
        assert client.set(key, token, nx=True, px=30_000)
        assert client.evalsha(script, 1, key, token) == 1

    ask = bare_socket(url)

    def floor(i: int) -> None:
        found = re.search(rb"lease\r\n:(\d+)\r\n", ask("LEASE.ACQUIRE", f"floor/{i % 16}", "TTL", 30_000, "HOLDER", "floor", "QUEUE"))
        assert found is not None
        assert ask("LEASE.RELEASE", int(found[1])) == b"+OK\r\n"

    with leasehold_client.connect(url, ttl=30) as leases, asyncio.Runner() as loop:

        def ours(i: int) -> None:
            leases.acquire(f"lock/{i % 16}").release()

        aio = loop.run(connected(url))

        async def turn_of_asyncio(first: int) -> float:
            began = time.perf_counter()
            for i in range(first, first + ROUNDS):
                lease = await aio.acquire(f"lock/aio/{i % 16}")
                await lease.release()
            return (time.perf_counter() - began) / ROUNDS * 1e6

        taken: dict[str, list[float]] = {"ours": [], "bare": [], "floor": [], "asyncio": []}
        # In turn, so that other work on the machine disturbs all alike.
        for i in range(TURNS + 5):
            measured = {
                "ours": turn(ours, i * ROUNDS),
                "bare": turn(bare, i * ROUNDS),
                "floor": turn(floor, i * ROUNDS),
                "asyncio": loop.run(turn_of_asyncio(i * ROUNDS)),
            }
            if i >= 5:
                for name, value in measured.items():
                    taken[name].append(value)
        loop.run(aio.close())
    return {name: statistics.median(values) for name, values in taken.items()}


def clients(port: int) -> dict[str, dict[str, float]]:
    import redis
    import redis.asyncio

    url, script = f"leasehold://127.0.0.1:{port}", "0" * 40
    client = redis.Redis(port=port)

    def bare(i: int) -> None:
        client.set(f"lock:{i % 16}", str(i), nx=True, px=30_000)
        client.evalsha(script, 1, f"lock:{i % 16}", str(i))

    with leasehold_client.connect(url, ttl=30) as leases, asyncio.Runner() as loop:
        aio = loop.run(connected(url))
        bare_aio = redis.asyncio.Redis(port=port)

        async def ours_aio(first: int) -> None:
            for i in range(first, first + ROUNDS):
                await (await aio.acquire(f"lock/{i % 16}")).release()

        async def bare_of_aio(first: int) -> None:
            for i in range(first, first + ROUNDS):
                await bare_aio.set(f"lock:{i % 16}", str(i), nx=True, px=30_000)
                await bare_aio.evalsha(script, 1, f"lock:{i % 16}", str(i))

        turns: dict[str, Callable[[int], object]] = {
            "ours": lambda first: turn(lambda i: leases.acquire(f"lock/{i % 16}").release(), first),
            "bare": lambda first: turn(bare, first),
            "ours_asyncio": lambda first: loop.run(ours_aio(first)),
            "bare_asyncio": lambda first: loop.run(bare_of_aio(first)),
        }
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in turns}
        for i in range(TURNS + 5):
            for name, each in turns.items():
                cpu, began = time.process_time(), time.perf_counter()
                each(i * ROUNDS)
                ran = time.perf_counter() - began, time.process_time() - cpu
                if i >= 5:
                    taken[name].append((ran[0] / ROUNDS * 1e6, ran[1] / ROUNDS * 1e6))
        loop.run(aio.close())
        loop.run(bare_aio.aclose())
    return {
        name: {"wall": statistics.median(wall for wall, _ in values), "cpu": statistics.median(cpu for _, cpu in values)}
        for name, values in taken.items()
    }


def renew(url: str, count: int, seconds: float) -> dict[str, float]:
    with leasehold_client.connect(url, ttl=30) as leases:
        with ThreadPoolExecutor(32) as threads:
            held = list(threads.map(lambda i: leases.acquire(f"kept/{i}"), range(count)))
        before = dict(leases.stats)
        cpu, began = time.process_time(), time.monotonic()
        time.sleep(seconds)
        used, ran = time.process_time() - cpu, time.monotonic() - began
        after = leases.stats
        assert all(lease.held for lease in held)
        return {
            "percent": used / ran * 100,
            "messages": (after["messages"] - before["messages"]) / ran,
            "renewals": (after["renewals"] - before["renewals"]) / ran,
        }


def main(mode: str, *words: str) -> object:
    if mode == "pairs":
        return pairs(words[0], int(words[1]))
    return clients(int(words[0])) if mode == "clients" else renew(words[0], int(words[1]), float(words[2]))


print(json.dumps(main(*sys.argv[1:])), flush=True)
