"""An in-memory stand-in for a server: enough of its commands for tests of programs that hold leases.

It decides as the real server does in the cases it knows, and knows far fewer: no keys, no policies but a capacity, no deadlock detection.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from .._errors import LeaseError
from .._renewal import LOSS_CAUSES
from ._clock import ManualClock
from ._connection import Connection
from ._lease import Lease, covers, options_of


def meet(name: str, lease: Lease, other: str, its: Lease) -> bool:
    """Whether one of two names is below the other, and that one is covered."""
    return ("COVERS" in lease.options and other.startswith(name + "/")) or ("COVERS" in its.options and name.startswith(other + "/"))


class MemoryServer:
    """The state behind all connections. ``commands`` has everything that was asked, for assertions."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._leases: dict[int, Lease] = {}
        self._holders: dict[str, dict[int, Lease]] = {}
        self._queue: dict[int, Lease] = {}
        self._children: dict[str, list[Lease]] = {}
        self._owners: dict[str, Lease] = {}
        self._connections: list[Connection] = []
        self._operations: dict[str, Any] = {}
        self._past: dict[str, list[dict[str, Any]]] = {}
        self._fences: dict[str, int] = {}
        self._capacity: dict[str, int] = {}
        self._number = 1000
        self._revision = 1
        #: Whether a lease that covers was ever asked for. Without one, no lease is compared with others than those of its names.
        self._covering = False
        self.commands: list[list[str]] = []
        #: What the log calls itself. ``rewind`` changes it, as a data directory put back from a copy does.
        self.log = "log-1"

    def connect(self) -> Connection:
        connection = Connection(self)
        self._connections.append(connection)
        return connection

    def now(self) -> float:
        return self._clock.read().boottime

    # Time

    def next_time(self) -> float | None:
        """When the next lease lapses, on the server's clock."""
        return min((lease.ends for lease in self._leases.values() if lease.connection is None), default=None)

    def tick(self) -> None:
        now = self.now()
        for lease in [lease for lease in self._leases.values() if lease.ends <= now and lease.connection is None]:
            grace = float(lease.options.get("GRACE", 0)) / 1000
            if lease.status == "frozen":
                self._free_units(lease)
            elif grace and lease.status == "live":
                lease.status = "suspect"
                lease.ends += grace
                self._tell([{"type": "suspected", "lease": lease.id, "key": key} for key in lease.entries])
            else:
                self._end(lease, "lapsed")

    def left(self, connection: Connection) -> None:
        self._connections.remove(connection)
        for lease in [lease for lease in self._leases.values() if lease.connection is connection]:
            if lease.status == "waiting":
                self._end(lease, "withdrawn")

    # What tests do

    def revoke(self, lease: int, by: str = "operator") -> None:
        """Ends a lease as an operator does. Its resources are free when its holder has stopped, or its term is over."""
        self._end(self._leases[lease], "revoked", by)

    def rewind(self) -> None:
        """The log is put back to before everything: nothing of it is known any more."""
        self.log += "'"
        for index in (self._leases, self._holders, self._queue, self._children, self._owners):
            index.clear()
        self._operations.clear()
        self._past.clear()

    def holder_of(self, resource: str) -> str | None:
        """The holder of a resource, if it is held."""
        return next((lease.holder for lease in self._holders.get(resource, {}).values()), None)

    # Commands

    def run(self, connection: Connection, words: list[str]) -> Any:
        name = words[0].upper()
        method: Callable[[Connection, list[str]], Any] | None = getattr(self, "_" + name.removeprefix("LEASE.").lower(), None)
        if method is None or name == "RUN":
            raise LeaseError("ERR", f"unknown command '{name}'")
        op = words[words.index("OP", 1) + 1] if "OP" in words[1:] else None
        if op is not None and op in self._operations:
            answer = self._operations[op]
            if isinstance(answer, LeaseError):
                raise answer
            return answer
        try:
            answer = method(connection, words)
        except LeaseError as error:
            answer = error
        if op is not None:
            self._operations[op] = answer
        if isinstance(answer, LeaseError):
            raise answer
        return answer

    def _hello(self, connection: Connection, words: list[str]) -> Any:
        shown = words[words.index("WITNESS") + 1] if "WITNESS" in words else ""
        continues = 1 if shown in ("", self.log) else 0
        return {"server": "leasehold", "proto": 3, "revision": self._revision, "witness": self.log, "continues": continues}

    def _ping(self, connection: Connection, words: list[str]) -> Any:
        return "PONG"

    def _grant(self, connection: Connection, words: list[str]) -> Any:
        return self._acquire(connection, words)

    def _acquire(self, connection: Connection, words: list[str]) -> Any:
        at = words.index("TTL")
        names, options, entries = words[1:at], *options_of(words[at + 2 :])
        if "REUSE" in options:
            for own in self._holders.get(names[0], {}).values():
                same = (own.holder, own.options.get("INCARNATION", str(own.id))) == (options.get("HOLDER"), options.get("INCARNATION"))
                alike = all((flag in own.options) == (flag in options) for flag in ("SHARED", "COVERS"))
                if same and own.status == "live" and set(own.grants) == set(names) and alike:
                    self._renew(connection, ["LEASE.RENEW", str(own.id)])
                    return {**self._granted(own), "reused": 1}
        self._number += 1
        lease = Lease(self._number, options.get("HOLDER", "anonymous"), int(words[at + 1]) / 1000, options, names)
        parent = int(options.get("PARENT", 0))
        if parent:
            self._live(parent)
        self._check_entries(lease, entries)
        lease.asked_entries = entries
        self._covering = self._covering or "COVERS" in options
        self._leases[lease.id] = lease
        if parent:
            self._children.setdefault(str(parent), []).append(lease)
        if self._fits(lease):
            self._give(lease)
            return self._granted(lease)
        if "QUEUE" not in options:
            del self._leases[lease.id]
            other = next((each for name in names for each in (*self._holders.get(name, {}).values(), *self._around(name, lease))), lease)
            raise LeaseError("HELD", f"{names[0]} is held by {other.holder}", {"resource": names[0], "holder": other.holder})
        for name in names if "ANY" not in options else []:
            if self._blocks_itself(name, lease):
                del self._leases[lease.id]
                text = f"{name} is held by a lease of the same client, which would wait for itself for ever"
                raise LeaseError("INVALID", text, {"resource": name}, reason="waits-for-itself")
        lease.connection = connection
        self._queue[lease.id] = lease
        self._tell([{"type": "queued", "lease": lease.id, "holder": lease.holder, "resource": name} for name in names])
        for name in names if "RECALL" in options else []:
            self._recall_holders(name, lease.holder)
        return {"lease": lease.id, "position": self._position(lease), "ttl": round(lease.term * 1000), "revision": self._revision}

    def _widen(self, connection: Connection, words: list[str]) -> Any:
        lease = self._live(int(words[1]))
        for at, word in enumerate(words):
            if word == "RESOURCE" and words[at + 1] not in lease.names:
                lease.names.append(words[at + 1])
                if words[at + 2 : at + 3] == ["UNITS"]:
                    lease.options[f"UNITSOF {words[at + 1]}"] = words[at + 3]
        self._settle()
        return "OK"

    def _renew(self, connection: Connection, words: list[str]) -> Any:
        terms = []
        for number in map(int, words[1:]):
            lease = self._leases.get(number)
            if lease is None or lease.status == "frozen":
                terms.append(-1)
                continue
            if lease.status == "suspect":
                lease.status = "live"
                self._tell([{"type": "recovered", "lease": lease.id, "key": key} for key in lease.entries])
            lease.term = lease.ttl if lease.status == "live" else lease.term
            lease.ends = self.now() + lease.term * 1.005
            terms.append(round(lease.term * 1000))
        return terms

    def _release(self, connection: Connection, words: list[str]) -> Any:
        lease = self._leases.get(int(words[1]))
        if lease is None:
            raise LeaseError("GONE", f"lease {words[1]} has ended", {"lease": int(words[1])})
        if lease.status == "frozen":
            self._free_units(lease)
        else:
            self._end(lease, words[words.index("LOST") + 1] if "LOST" in words else "released")
        return "OK"

    def _transfer(self, connection: Connection, words: list[str]) -> Any:
        lease = self._live(int(words[1]))
        names, to = list(lease.grants), words[words.index("TO") + 1]
        self._end(lease, "transferred", to, settle=False)
        for waiter in self._waiting():
            same_mode = all((flag in waiter.options) == (flag in lease.options) for flag in ("SHARED", "COVERS"))
            if waiter.holder == to and same_mode and set(waiter.names) <= set(names):
                waiter.names = names
                self._give_waiter(waiter)
                return waiter.id
        self._number += 1
        heir = Lease(self._number, to, lease.ttl, {name: value for name, value in lease.options.items() if name != "INCARNATION"}, names)
        heir.open = True
        self._leases[heir.id] = heir
        self._give(heir)
        return heir.id

    def _claim(self, connection: Connection, words: list[str]) -> Any:
        lease = self._live(int(words[1]))
        if not lease.open:
            facts = {"lease": lease.id, "holder": lease.holder, "incarnation": int(lease.options.get("INCARNATION") or lease.id)}
            raise LeaseError("HELD", f"lease {lease.id} has a process already, which may believe in it", facts)
        lease.open = False
        if "INCARNATION" in words:
            lease.options["INCARNATION"] = words[words.index("INCARNATION") + 1]
        return "OK"

    def _put(self, connection: Connection, words: list[str]) -> Any:
        lease = self._live(int(words[1]))
        self._check_entries(lease, {words[2]: words[3]})
        self._attach(lease, words[2], words[3])
        return "OK"

    def _del(self, connection: Connection, words: list[str]) -> Any:
        lease = self._owners.pop(words[1], None)
        if lease is not None:
            del lease.entries[words[1]]
            self._tell([{"type": "deleted", "lease": lease.id, "key": words[1]}])
            return "OK"
        raise LeaseError("NOT_FOUND", f"there is no entry {words[1]}", {"key": words[1]})

    def _fence(self, connection: Connection, words: list[str]) -> Any:
        highest, token = self._fences.get(words[1], 0), int(words[2])
        if token < highest:
            raise LeaseError("STALE", f"token {token} for {words[1]} is out of date: {highest} was seen", {"highest": highest})
        self._fences[words[1]] = token
        return token

    def _info(self, connection: Connection, words: list[str]) -> Any:
        lease = self._leases.get(int(words[1]))
        if lease is None:
            return None
        grants = [{"resource": name, "token": token} for name, token in lease.grants.items()]
        wants = [] if lease.grants else [{"resource": name, "position": self._position(lease)} for name in lease.names]
        shown = {"lease": lease.id, "holder": lease.holder, "status": lease.status, "recalled": lease.recalled}
        more = {"incarnation": int(lease.options.get("INCARNATION", lease.id)), "ttl": round(lease.ttl * 1000)}
        return {**shown, **more, "grants": grants, "wants": wants}

    def _recall(self, connection: Connection, words: list[str]) -> Any:
        if not self._recall_holders(words[1], words[3] if len(words) > 3 else ""):
            raise LeaseError("NOT_FOUND", f"{words[1]} is not held", {"resource": words[1]})
        return "OK"

    def _recall_holders(self, name: str, by: str) -> bool:
        events = []
        for lease in self._holders.get(name, {}).values():
            lease.recalled = True
            events.append({"type": "recalled", "lease": lease.id, "resource": name, "by": by})
        self._tell(events)
        return bool(events)

    def _show(self, connection: Connection, words: list[str]) -> Any:
        grants = [
            {"lease": lease.id, "holder": lease.holder, "token": lease.grants[words[1]], "status": lease.status}
            for lease in self._holders.get(words[1], {}).values()
        ]
        queue = [
            {"lease": lease.id, "holder": lease.holder, "priority": int(lease.options.get("PRIORITY", 0))}
            for lease in self._waiting()
            if words[1] in lease.names
        ]
        return {"resource": words[1], "capacity": self._capacity.get(words[1], 1), "grants": grants, "queue": queue}

    def _list(self, connection: Connection, words: list[str]) -> Any:
        prefix = words[1] if len(words) % 2 == 0 else ""
        names = {name for lease in self._leases.values() for name in (*lease.grants, *(lease.names if lease.connection else ()))}
        return [self._show(connection, ["LEASE.SHOW", name]) for name in sorted(names) if covers(prefix, name)]

    def _entries(self, connection: Connection, words: list[str]) -> Any:
        prefix = words[1] if len(words) % 2 == 0 else ""
        return [
            {"key": key, "value": value, "lease": lease.id, "holder": lease.holder, "status": lease.status, "revision": self._revision}
            for lease in self._leases.values()
            for key, value in lease.entries.items()
            if covers(prefix, key)
        ]

    def _history(self, connection: Connection, words: list[str]) -> Any:
        return list(self._past.get(words[1], []))

    def _policy(self, connection: Connection, words: list[str]) -> Any:
        self._capacity[words[2]] = int(words[words.index("capacity") + 1])
        return "OK"

    def _watch(self, connection: Connection, words: list[str]) -> Any:
        connection.watches.add(words[1])
        return self._revision

    def _unwatch(self, connection: Connection, words: list[str]) -> Any:
        connection.watches.difference_update(words[1:])
        return len(words) - 1

    # Rules

    def _waiting(self) -> list[Lease]:
        return sorted(self._queue.values(), key=lambda lease: (-int(lease.options.get("PRIORITY", 0)), lease.id))

    def _position(self, lease: Lease) -> int:
        return [each.id for each in self._waiting() if set(each.names) & set(lease.names)].index(lease.id)

    def _around(self, name: str, lease: Lease) -> list[Lease]:
        """The holders above and below that a request for this name conflicts with, apart from those of its client."""
        if not self._covering:
            return []
        own = {each.id for each in self._leases.values() if each.holder == lease.holder and each.id in lease.options.get("HOLDING", [])}
        others = [each for each in self._leases.values() if each.id not in own and each is not lease]
        shared = "SHARED" in lease.options
        return [
            each
            for each in others
            if any(meet(name, lease, held, each) for held in each.grants) and not (shared and "SHARED" in each.options)
        ]

    def _free(self, name: str, lease: Lease) -> bool:
        holders = self._holders.get(name, {}).values()
        if self._around(name, lease):
            return False
        if "SHARED" in lease.options:
            return all("SHARED" in each.options for each in holders)
        if any("SHARED" in each.options for each in holders):
            return False
        return sum(each.units(name) for each in holders) + lease.units(name) <= self._room(name, lease, *holders)

    def _room(self, name: str, *leases: Lease) -> int:
        """The units that may be in use at once while all of these leases are on the resource."""
        capacity = self._capacity.get(name)
        each = [1 if "COVERS" in lease.options else int(lease.options.get("PERMITS", capacity or 1)) for lease in leases]
        return min(each if capacity is None else [*each, capacity])

    def _blocks_itself(self, name: str, lease: Lease) -> bool:
        kept = [each for each in self._holders.get(name, {}).values() if each.id in lease.options.get("HOLDING", [])]
        if "SHARED" in lease.options:
            return any("SHARED" not in each.options for each in kept)
        units = sum(each.units(name) for each in kept)
        return any("SHARED" in each.options for each in kept) or units + lease.units(name) > self._room(name, lease, *kept)

    def _choice(self, lease: Lease) -> list[str]:
        earlier = [each for each in self._waiting() if each.id < lease.id]
        covering = [each for each in earlier if "COVERS" in lease.options or "COVERS" in each.options]
        ahead = {name for each in earlier for name in each.names}
        ahead |= {name for name in lease.names for each in covering for other in each.names if meet(name, lease, other, each)}
        free = [name for name in lease.names if name not in ahead and self._free(name, lease)]
        wanted = int(lease.options.get("ANY", len(lease.names)))
        return free[:wanted] if len(free) >= wanted else []

    def _fits(self, lease: Lease) -> bool:
        return not lease.names or bool(self._choice(lease))

    def _give(self, lease: Lease) -> None:
        names = self._choice(lease)
        lease.status = "live"
        lease.connection = None
        self._queue.pop(lease.id, None)
        lease.ends = self.now() + lease.term * 1.005
        for name in names:
            self._number += 1
            lease.grants[name] = self._number
            self._holders.setdefault(name, {})[lease.id] = lease
        told = [{"type": "granted", "lease": lease.id, "holder": lease.holder, "resource": n, "token": t} for n, t in lease.grants.items()]
        self._tell(told)
        for key, value in lease.asked_entries.items():
            self._attach(lease, key, value)

    def _granted(self, lease: Lease) -> dict[str, Any]:
        tokens = list(lease.grants.values())
        answer = {"lease": lease.id, "token": tokens[0] if tokens else 0, "ttl": round(lease.term * 1000), "revision": self._revision}
        return {**answer, "tokens": dict(lease.grants)} if len(tokens) > 1 or "ANY" in lease.options else answer

    def _end(self, lease: Lease, cause: str, by: str = "", settle: bool = True) -> None:
        if lease.id not in self._leases or lease.status == "frozen":
            return
        self._queue.pop(lease.id, None)
        for child in self._children.pop(str(lease.id), []):
            self._end(child, "parent", str(lease.id), settle=False)
        for key in lease.entries:
            self._owners.pop(key, None)
        for name in lease.grants:
            self._past.setdefault(name, []).append({"lease": lease.id, "holder": lease.holder, "cause": cause, "by": by})
        kind = "lapsed" if cause in LOSS_CAUSES else cause if cause in ("released", "lapsed", "transferred") else "revoked"
        events = [{"type": kind, "lease": lease.id, "holder": lease.holder, "resource": name} for name in lease.grants]
        events += [{"type": "deleted", "lease": lease.id, "key": key} for key in lease.entries]
        lease.entries = {}
        if kind == "revoked" and lease.grants:
            # Its holder may not know yet: no other holder gets it before the term is over, or the holder says that it has stopped.
            lease.status = "frozen"
            self._tell(events)
            return
        self._free_units(lease, settle=False)
        self._tell(events)
        if settle:
            self._settle()

    def _free_units(self, lease: Lease, settle: bool = True) -> None:
        del self._leases[lease.id]
        for name in lease.grants:
            del self._holders[name][lease.id]
        if settle:
            self._settle()

    def _settle(self) -> None:
        for lease in self._waiting():
            if self._fits(lease):
                self._give_waiter(lease)

    def _give_waiter(self, lease: Lease) -> None:
        connection = lease.connection
        self._give(lease)
        if connection is not None:
            connection.push("lease.granted", lease.id, {**self._granted(lease), "tokens": dict(lease.grants), "waited": 1})

    def _check_entries(self, lease: Lease, entries: dict[str, str]) -> None:
        for key in entries:
            owner = self._owners.get(key)
            if owner is not None and owner.holder != lease.holder:
                raise LeaseError("HELD", f"the entry {key} belongs to {owner.holder}", {"key": key, "holder": owner.holder})

    def _attach(self, lease: Lease, key: str, value: str) -> None:
        if key in self._owners:
            del self._owners[key].entries[key]
        lease.entries[key] = value
        self._owners[key] = lease
        self._tell([{"type": "put", "lease": lease.id, "holder": lease.holder, "key": key, "value": value}])

    def _live(self, number: int) -> Lease:
        if number not in self._leases or self._leases[number].status == "frozen":
            raise LeaseError("GONE", f"lease {number} has ended", {"lease": number})
        return self._leases[number]

    def _tell(self, events: list[dict[str, Any]]) -> None:
        if not events:
            return
        self._revision += 1
        for connection in self._connections:
            for prefix in connection.watches:
                seen = [{**e, "revision": self._revision} for e in events if covers(prefix, e.get("resource") or e.get("key", ""))]
                if seen:
                    connection.push("lease.events", prefix, self._revision, json.dumps(seen))
