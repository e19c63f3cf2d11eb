"""Against a real server: see server_process.py."""

from __future__ import annotations

import asyncio
import pathlib
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

import leasehold_client
import leasehold_client.aio
from leasehold_client import LeaseError

from .bounds import EVENT_TIMEOUT
from .renewals import await_a_term
from .server_process import Server, needs_server

pytestmark = needs_server


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.kill()


def test_acquire_wait_and_release(server: Server) -> None:
    with leasehold_client.connect(server.url, holder="a") as a, leasehold_client.connect(server.url, holder="b") as b:
        places: list[int] = []
        with a.request("jobs/nightly", ttl=30) as first:
            assert b.try_acquire("jobs/nightly") is None
            assert a.show("jobs/nightly")["grants"][0]["holder"] == "a"
            got: list[leasehold_client.Lease] = []
            thread = threading.Thread(target=lambda: got.append(b.acquire("jobs/nightly", wait=EVENT_TIMEOUT, on_wait=places.append)))
            thread.start()
            # `on_wait` runs on a thread of its own, perhaps later than the server shows the queue, and than the grant.
            end = time.monotonic() + EVENT_TIMEOUT
            while not places and time.monotonic() < end:
                time.sleep(0.02)
            assert a.show("jobs/nightly")["queue"]
        thread.join(EVENT_TIMEOUT)
        assert got[0].token > first.token and places[0] == 0
        assert a.history("jobs/nightly")[0]["lease"] == first.id
        got[0].release()


def test_a_broken_lease_is_lost_at_once_or_after_the_given_time(server: Server) -> None:
    with leasehold_client.connect(server.url, holder="a") as a, leasehold_client.connect(server.url, holder="operator") as operator:
        later, now = a.acquire("break/later", ttl=3), a.acquire("break/now", ttl=3)
        operator.break_("break/later", after="20s")
        operator.break_("break/now")
        assert now.lost.wait(20)
        with pytest.raises(leasehold_client.LeaseLost, match="operator"):
            now.assert_held()
        assert later.held
        operator.break_("break/later", after=0.05)
        assert later.lost.wait(20)


def test_revoke_ends_leases_by_number_holder_or_prefix(server: Server) -> None:
    async def main() -> None:
        async with (
            leasehold_client.aio.connect(server.url, holder="a") as a,
            leasehold_client.aio.connect(server.url, holder="operator") as operator,
        ):
            by_lease, by_holder, by_prefix = [await a.acquire(f"revoke/{name}", ttl=3) for name in "xyz"]
            await operator.revoke(lease=by_lease.id)
            await operator.revoke(prefix="revoke/z")
            await asyncio.wait_for(asyncio.gather(by_lease.lost.wait(), by_prefix.lost.wait()), 20)
            assert by_holder.held
            await operator.revoke(holder="a", force=True)
            await asyncio.wait_for(by_holder.lost.wait(), 20)
            with pytest.raises(LeaseError, match="one of lease, holder and prefix"):
                await operator.revoke()
            with pytest.raises(LeaseError, match="revoke/y is not held"):
                await operator.break_("revoke/y", after="1s")

    asyncio.run(main())


def test_errors_have_the_codes_of_the_server(server: Server) -> None:
    with leasehold_client.connect(server.url) as leases:
        with pytest.raises(LeaseError) as caught:
            leases.acquire("k", ttl="2d")
        assert caught.value.code == "INVALID"
        with pytest.raises(LeaseError) as caught:
            leases.acquire("k", parent=12)
        assert caught.value.code == "GONE"
        assert leases.fence("f", 7) == 7
        with pytest.raises(LeaseError) as caught:
            leases.fence("f", 6)
        assert caught.value.code == "STALE"


def test_a_lease_survives_the_loss_of_its_connection_and_a_stall_of_the_server(server: Server) -> None:
    with leasehold_client.connect(server.url) as leases, leases.acquire("stalled", ttl=6) as lease:
        server.signal(signal.SIGSTOP)
        try:
            time.sleep(1.5)
            assert lease.held
        finally:
            server.signal(signal.SIGCONT)
        await_a_term(leases, lease)
        assert lease.held


def test_watch_election_session_registry_and_pool(server: Server) -> None:
    with leasehold_client.connect(server.url, holder="a") as a, leasehold_client.connect(server.url, holder="b") as b:
        with a.watch("watched") as events:
            with b.acquire("watched/k"):
                assert next(events)[0]["type"] == "granted"
            assert next(events)[0]["type"] == "released"
        for term in a.election("office").terms():
            leader = b.election("office").leader()
            assert leader is not None and leader.token == term.token
            break
        with a.session() as session:
            lease = session.acquire("documents/42")
            session.put("presence/ann", "here")
            assert b.entries("presence")[0]["value"] == "here"
        assert lease.lost.wait(10)
        assert b.entries("presence") == []
        found = b.registry.discover("planner")
        with a.registry.register("planner", address="http://10.0.0.7:8080", metadata={"x": [1, 2]}) as me:
            me.update(load=3, status="warning")
            changes = found.changes()
            seen = next(changes).instance
            while (seen.status, seen.load) != ("warning", 3):
                seen = next(changes).instance
            assert seen.metadata == {"x": [1, 2]}
        while next(changes).type != "removed":
            pass
        offer = a.pool("gpu").offer("gpu-3")
        with b.pool("gpu").take(wait=10) as gpu:
            assert gpu.devices == ("3",)
        offer.release()


def test_asyncio(server: Server) -> None:
    async def main() -> None:
        async with leasehold_client.aio.connect(server.url) as leases, leasehold_client.aio.connect(server.url) as others:
            async with leases.request("aio", ttl=5) as lease:
                lease.assert_held()
                task = asyncio.create_task(others.acquire("aio"))
                while not (await leases.show("aio"))["queue"]:
                    await asyncio.sleep(0.01)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                # The other client withdraws its request after its caller has been told.
                while (await leases.show("aio"))["queue"]:
                    await asyncio.sleep(0.01)
            assert await leases.try_acquire("aio") is not None

    asyncio.run(asyncio.wait_for(main(), 30))


COUNTER = """
import pathlib, sys, leasehold_client
path = pathlib.Path(sys.argv[2])
with leasehold_client.connect(sys.argv[1], ttl=10) as leases:
    for _ in range(int(sys.argv[3])):
        with leases.request("counter", wait=120) as lease:
            highest, count = map(int, path.read_text().split())
            assert lease.token > highest
            lease.assert_held()
            path.write_text(f"{lease.token} {count + 1}")
"""


def test_processes_lose_no_update_while_the_server_is_killed(tmp_path: pathlib.Path) -> None:
    folder = tmp_path
    server = Server(f"file:{folder}/leases.db")
    counter = folder / "counter"
    counter.write_text("0 0")
    try:
        words = [sys.executable, "-c", COUNTER, server.url, str(counter), "40"]
        processes = [subprocess.Popen(words) for _ in range(3)]
        for _ in range(2):
            time.sleep(1)
            server.kill()
            server.start()
        assert [process.wait(EVENT_TIMEOUT) for process in processes] == [0, 0, 0]
        assert counter.read_text().split()[1] == "120"
    finally:
        server.kill()


def test_a_waiter_gets_a_lease_that_is_passed_on_to_it_and_learns_of_recalls(server: Server) -> None:
    with leasehold_client.connect(server.url, holder="a") as a, leasehold_client.connect(server.url, holder="b") as b:
        first = a.acquire("passed-on", ttl=30)
        got: list[leasehold_client.Lease] = []
        thread = threading.Thread(target=lambda: got.append(b.acquire("passed-on", wait=60, recall=True)))
        assert not first.recalled.is_set()
        thread.start()
        assert first.recalled.wait(30) and first.held
        number = first.transfer("b")
        thread.join(60)
        assert got[0].id == number and got[0].token > first.token and not b.show("passed-on")["queue"]
        got[0].release()


def test_a_process_that_goes_on_with_its_former_incarnation_adopts_what_it_had_claimed(server: Server) -> None:
    with leasehold_client.connect(server.url, holder="a") as a, leasehold_client.connect(server.url, holder="crew") as former:
        number = a.acquire("claimed", ttl=30).transfer("crew")
        lease = former.adopt(number)
        with leasehold_client.connect(server.url, holder="crew", incarnation=former.incarnation) as following:
            assert following.adopt(number).token == lease.token


def test_a_process_takes_over_what_was_passed_on_to_its_name(server: Server) -> None:
    with leasehold_client.connect(server.url, holder="a") as a, leasehold_client.connect(server.url, holder="crew") as b:
        first = a.acquire("adopted", ttl=30)
        number = first.transfer("crew")
        with b.adopt(number) as lease:
            assert lease.token > first.token and lease.remaining() > 25

            async def refused() -> str:
                async with leasehold_client.aio.connect(server.url, holder="crew") as c:
                    with pytest.raises(LeaseError) as caught:
                        await c.adopt(number)
                    return caught.value.code

            assert asyncio.run(refused()) == "HELD"
            again = lease.transfer("crew")

        async def adopted() -> int:
            async with leasehold_client.aio.connect(server.url, holder="crew") as c, await c.adopt(again) as last:
                assert last.held
                return last.token

        assert asyncio.run(adopted()) > lease.token


def test_several_instances_and_services(server: Server) -> None:
    instances: list[dict[str, object]] = [{"service": "web", "generation": 2}, {"service": "metrics", "status": "warning"}]
    with leasehold_client.connect(server.url) as leases, leases.registry.register_all(instances):
        found = {each["service"]: each["instances"] for each in leases.registry.services()}
        assert (found["web"], found["metrics"]) == (1, 1)
        assert {each.service for each in leases.registry.discover().list()} >= {"web", "metrics"}


def test_a_unix_socket(tmp_path: pathlib.Path) -> None:
    server = Server(options=["--socket", str(tmp_path / "leases.sock")])
    try:
        with leasehold_client.connect(f"leasehold://{tmp_path}/leases.sock") as leases, leases.acquire("k") as lease:
            assert lease.held
    finally:
        server.kill()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl to make certificates with")
def test_a_client_certificate(tmp_path: pathlib.Path) -> None:
    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=tmp_path, check=True, capture_output=True, timeout=EVENT_TIMEOUT)

    new = ["req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    openssl(
        *new,
        "-x509",
        "-subj",
        "/CN=authority",
        "-keyout",
        "ca.key",
        "-out",
        "ca.pem",
        "-days",
        "2",
        "-addext",
        "keyUsage=critical,keyCertSign",
    )
    (tmp_path / "names").write_text("subjectAltName=DNS:localhost\nauthorityKeyIdentifier=keyid\nsubjectKeyIdentifier=hash\n")
    for name in ("server", "client"):
        openssl(*new, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr")
        signed = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "names", "-days", "2"]
        openssl("x509", "-req", "-in", f"{name}.csr", "-out", f"{name}.pem", *signed)
    files = {name: str(tmp_path / name) for name in ("ca.pem", "server.pem", "server.key", "client.pem", "client.key")}
    options = ["--tls-cert", files["server.pem"], "--tls-key", files["server.key"], "--tls-ca", files["ca.pem"]]
    server = Server(options=options)
    try:
        url = f"leaseholds://localhost:{server.port}?ca={files['ca.pem']}"
        with (
            leasehold_client.connect(f"{url}&cert={files['client.pem']}&key={files['client.key']}") as leases,
            leases.acquire("k") as lease,
        ):
            assert lease.held
        with leasehold_client.connect(url) as strangers, pytest.raises(LeaseError) as caught:
            strangers.try_acquire("k")
        assert caught.value.code == "UNAVAILABLE"
    finally:
        server.kill()


def test_a_taker_that_waits_gets_a_member_that_is_offered_meanwhile(server: Server) -> None:
    with leasehold_client.connect(server.url, holder="a") as a, leasehold_client.connect(server.url, holder="b") as b:
        pool = a.pool("machines")
        offers = [pool.offer("m-0")]
        with pool.take(1):
            taken: list[tuple[str, ...]] = []

            def take() -> None:
                with b.pool("machines").take(1, wait=120) as member:
                    taken.append(member.resources)

            thread = threading.Thread(target=take)
            thread.start()
            while not a.show("machines/m-0")["queue"]:
                time.sleep(0.02)
            offers.append(pool.offer("m-1", units=3))
            thread.join(120)
            assert taken == [("machines/m-1",)]
        for offer in offers:
            offer.release()
