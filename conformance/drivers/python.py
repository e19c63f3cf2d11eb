"""The driver of the Python client: runs its engine by hand, as the conductor says. See ../README.md for the messages."""

from __future__ import annotations

import base64
import json
import os
import pathlib
import sys
from typing import Any

# LEASEHOLD_CLIENT: another copy of the client, as planted.py makes them.
SOURCE = pathlib.Path(__file__).resolve().parents[2] / "clients" / "python" / "src"
sys.path.insert(0, os.environ.get("LEASEHOLD_CLIENT", str(SOURCE)))

from leasehold_client._clock import Reading  # noqa: E402
from leasehold_client._core import Core  # noqa: E402
from leasehold_client._engine import Engine, Options  # noqa: E402
from leasehold_client._errors import LeaseError  # noqa: E402
from leasehold_client._future import Future  # noqa: E402
from leasehold_client._handle import LeaseHandle  # noqa: E402
from leasehold_client._held import Held  # noqa: E402
from leasehold_client._resp import ProtocolError  # noqa: E402


class DrivenClock:
    """Shows what the conductor says."""

    def __init__(self) -> None:
        self.reading = Reading(0.0, 0.0)
        self.time_of_day = 0.0

    def set(self, at: dict[str, float]) -> None:
        self.reading = Reading(at["monotonic"] / 1000, at["boottime"] / 1000)
        self.time_of_day = at["wall"] / 1000

    def read(self) -> Reading:
        return self.reading

    def wall(self) -> float:
        return self.time_of_day


class Client:
    """One client, which is also the owner of its engine."""

    foreign = False

    def __init__(self, name: str, at: dict[str, float], options: dict[str, Any], out: dict[str, Any]) -> None:
        self.name = name
        self._out = out
        self.clock = DrivenClock()
        self.clock.set(at)
        self.engine = Engine(Options(options["holder"], None, 0.005, options.get("addresses", 1)), self.clock)
        self.core = Core(self.engine, self, 30.0)
        self._connections = 0
        self._connection: int | None = None
        self._connecting = False
        self._calls: dict[int, Future[Held]] = {}
        self._adopting: set[int] = set()
        self._leases: dict[str, LeaseHandle] = {}
        self._jobs: list[Any] = []

    # As the owner of its engine

    def do(self, work: Any) -> Any:
        return work(self.engine)

    def post(self, work: Any) -> None:
        """Done when the client's thread runs next, as its runner does."""
        self._jobs.append(work)

    def wait(self, future: Future[Any]) -> Any:
        raise RuntimeError("nothing waits here")

    def close(self) -> None: ...

    # What the conductor says

    def call(self, number: int, method: str, args: dict[str, Any]) -> None:
        if method in ("acquire", "tryAcquire"):
            self._acquire(number, method == "acquire", args)
        elif method == "release":
            future = self.engine.release(self._leases[args["lease"]]._held)
            future.add_done_callback(lambda done: self._settled(number, done))
        elif method == "transfer":
            flow = self.core.transfer(self._leases[args["lease"]]._held, args["to"])
            next(flow).add_done_callback(lambda done: self._settled(number, done, "given"))
        elif method == "adopt":
            adopting = self.engine.adopt(args["lease"], "half", None)
            self._adopting.add(number)
            adopting.add_done_callback(lambda done: self._acquired(number, args["as"], done))
        elif method == "cancel":
            self.engine.cancel(self._calls[args["call"]])
            self._event("answer", call=number, value={})
        elif method == "close":
            for answer in self.engine.close():
                answer.add_done_callback(lambda done: None)
            self._event("answer", call=number, value={})
        else:
            raise ValueError(method)

    def _acquire(self, number: int, waits: bool, args: dict[str, Any]) -> None:
        options: dict[str, Any] = {
            name: args[name] for name in ("mode", "priority", "units", "permits", "covers", "renew", "steal") if name in args
        }
        for name, option in {"ttl": "ttl", "wait": "wait", "grace": "grace", "maxLife": "max_life"}.items():
            if name in args:
                options[option] = args[name] / 1000
        if "parent" in args:
            options["parent"] = self._leases[args["parent"]]
        if args.get("onWait"):
            options["on_wait"] = lambda position: self._event("position", position=position)
        future = self.engine.acquire(self.core.asked("acquire", args["names"], options, waits))
        self._calls[number] = future
        future.add_done_callback(lambda done: self._acquired(number, args["as"], done))

    def _acquired(self, number: int, name: str, done: Future[Held]) -> None:
        if done.cancelled():
            return self._event("answer", call=number, error={"code": "CANCELLED", "message": "", "facts": {}})
        error = done.exception()
        if isinstance(error, LeaseError):
            if error.code == "HELD" and number not in self._adopting:
                return self._event("answer", call=number, value=None)
            return self._event("answer", call=number, error=told(error))
        held = done.result()
        handle = self._leases[name] = LeaseHandle(self.core, held)
        handle.on_lost(lambda reason: self._event("lost", lease=name, error=told(reason)))
        self._event("answer", call=number, value={"lease": held.id, "token": handle.token})

    def _settled(self, number: int, done: Future[Any], name: str = "") -> None:
        error = done.exception()
        if isinstance(error, LeaseError):
            self._event("answer", call=number, error=told(error))
        else:
            self._event("answer", call=number, value={name: done.result()} if name else {})

    def opened(self, connection: int) -> None:
        self._connecting = False
        self.engine.connected()

    def failed(self, reason: str) -> None:
        self._connecting = False
        self._connection = None
        self.engine.disconnected(LeaseError("UNAVAILABLE", reason))

    def closed(self, connection: int, reason: str) -> None:
        if connection == self._connection:
            self.failed(reason)

    def bytes(self, connection: int, data: str) -> None:
        if connection != self._connection:
            return
        try:
            self.engine.received(base64.b64decode(data))
        except ProtocolError as error:
            self._drop(LeaseError("UNAVAILABLE", str(error)))

    def held(self) -> dict[str, float]:
        return {name: (lease.remaining() * 1000 if lease.held else 0) for name, lease in self._leases.items()}

    # What it wants

    def pump(self) -> None:
        engine = self.engine
        jobs, self._jobs = self._jobs, []
        for job in jobs:
            job(engine)
        if engine.drop is not None:
            self._drop(engine.drop)
        if self._connection is None and engine.wants_connection:
            self._connections += 1
            self._connection = self._connections
            self._connecting = True
            address = (self._connections - 1) % self.engine.options.addresses
            self._out["open"].append({"client": self.name, "connection": self._connection, "address": address})
        data = engine.take_sends()
        if data and self._connection is not None:
            self._out["send"].append({"client": self.name, "connection": self._connection, "data": base64.b64encode(data).decode()})
        for call in engine.take_calls():
            call()
        engine.calls_done()
        more = engine.take_sends()
        if more and self._connection is not None:
            self._out["send"].append({"client": self.name, "connection": self._connection, "data": base64.b64encode(more).decode()})
        moment = engine.next_time()
        if self._connecting and moment is not None:
            moment = engine.timers.next()
        # A little later rather than earlier: a timer that is asked for too early is not due yet.
        self._out["next"][self.name] = None if moment is None else moment * 1000 + 0.001

    def _drop(self, error: LeaseError) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._out["close"].append({"client": self.name, "connection": connection})
            self.engine.disconnected(error)

    def _event(self, event: str, **more: Any) -> None:
        self._out["events"].append({"event": event, "client": self.name, **more})


def told(error: LeaseError) -> dict[str, Any]:
    return {"code": error.code, "reason": error.reason, "message": error.message, "facts": dict(error.facts)}


def main() -> None:
    clients: dict[str, Client] = {}
    out: dict[str, Any] = {}
    for line in sys.stdin:
        message = json.loads(line)
        out.update({"open": [], "send": [], "close": [], "events": [], "next": {}})
        out.pop("held", None)
        name, what = message["client"], message["do"]
        if what == "client":
            clients[name] = Client(name, message["at"], message["options"], out)
        client = clients[name]
        client.clock.set(message["at"])
        if what == "call":
            client.call(message["call"], message["method"], message["args"])
        elif what == "opened":
            client.opened(message["connection"])
        elif what == "failed":
            client.failed(message["reason"])
        elif what == "closed":
            client.closed(message["connection"], message["reason"])
        elif what == "bytes":
            client.bytes(message["connection"], message["data"])
        elif what == "tick":
            client.engine.tick()
        elif what == "look":
            # The program looks. The client's own thread does not run for that.
            out["held"] = client.held()
        if what != "look":
            client.pump()
        print(json.dumps(out), flush=True)


main()
