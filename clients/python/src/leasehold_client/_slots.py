"""Numbered slots, without regard to how their user waits: one number of a range for each holder.

A slot is the resource ``NAME/NUMBER``. One command asks for any of them in an order of preference, and the server takes the first that is
free: none is chosen by reading first and locking afterwards. With ``sticky``, the number is remembered in the entry ``NAME/sticky/WHO``, on
a lease without resources that outlives this process. Records and order are those of the TypeScript library.

Not promised: that a remembered number is still free. The memory is a preference: a key without rights to it only loses that.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from ._channel import Request
from ._core import Core
from ._duration import Duration, seconds
from ._engine import Engine
from ._errors import LeaseError
from ._flow import Flow
from ._held import Held
from ._rendezvous import draw, hash_of
from ._timers import Timer
from ._widening import MAX_RESOURCES

#: The most numbers in a range: all ports.
MAX_SLOTS = 65_536
#: A number in hand must not wait longer than this for its record to be written.
WRITE_TIMEOUT = 2.0
_REFUSED = ("any", "mode", "reuse", "steal", "units")


class Remembered(NamedTuple):
    """The number that a name had last, and the lease that carries the record."""

    who: str
    number: int
    lease: int


def take_slot(
    core: Core,
    name: str,
    numbers: range,
    sticky: str | None,
    remember: Duration,
    options: Mapping[str, Any],
    waits: bool,
    granted: list[Held],
) -> Flow[int]:
    """The number. ``granted`` gets its lease, for a caller that is interrupted, or that is told of an error."""
    call = "slot" if waits else "try_slot"
    for option in _REFUSED:
        if option in options:
            raise LeaseError("INVALID", f"{call} has no option {option}", {"option": option})
    _check(numbers)
    span = seconds(remember, "remember")
    core.asked(call, name, options, waits)  # before anything is read
    remembered = yield from _remembered(core, name)
    order = preferences(numbers, sticky, remembered)
    held = yield from _acquire_any(core, call, name, order, options, waits)
    granted.append(held)
    number = int(held.resources[0][len(name) + 1 :])
    if sticky is not None:
        record = yield from _write(core, name, sticky, number, span, remembered)
        if record is not None:
            core.owner.post(lambda engine: _keep(engine, record, span / 2, held))
    return number


def _check(numbers: object) -> None:
    if not isinstance(numbers, range) or not 0 < len(numbers) <= MAX_SLOTS or numbers.step != 1 or numbers[0] < 0:
        text = f"slots are numbered by a range of whole numbers from 0, range(3000, 3100) for example, at most {MAX_SLOTS} of them"
        raise LeaseError("INVALID", f"{text}; not {numbers!r}", {"option": "numbers"})


def preferences(numbers: range, sticky: str | None, remembered: list[Remembered]) -> list[int]:
    """The remembered number; those that are remembered for no other name; the others. Within each part by rendezvous hash, so that the
    names prefer different numbers; without ``sticky``, the lowest first."""
    last = next((record.number for record in remembered if record.who == sticky), None)
    foreign = {record.number for record in remembered if record.who != sticky}
    who = None if sticky is None else hash_of(sticky)

    def rank(number: int) -> tuple[int, int, int]:
        part = 0 if number == last else 2 if number in foreign else 1
        return part, 0 if who is None else -draw(who, hash_of(str(number))), number

    return sorted(numbers, key=rank)


def _acquire_any(core: Core, call: str, name: str, order: list[int], options: Mapping[str, Any], waits: bool) -> Flow[Held]:
    """The first number that is free. One request names a limited number of them. In a longer range it asks for free ones without waiting:
    others may have taken all of these since the look, and then it looks again. It waits only when no number is free."""

    def request(chosen: list[int], settings: Mapping[str, Any], wait: bool) -> Flow[Held]:
        names = [f"{name}/{number}" for number in chosen[:MAX_RESOURCES]]
        return core.obtain(core.asked(call, names, {**settings, "any": 1}, wait))

    now = {option: value for option, value in options.items() if option not in ("wait", "on_wait")}
    # Each time that it fails, others have taken as many numbers as it named.
    for _ in range(0, len(order) if len(order) > MAX_RESOURCES else 0, MAX_RESOURCES):
        rows = yield core.read("LEASE.LIST", name)
        busy = {row["resource"] for row in rows if row["grants"] or row["queue"]}
        free = [number for number in order if f"{name}/{number}" not in busy]
        if not free:
            break
        try:
            return (yield from request(free, now, False))
        except LeaseError as error:
            if error.code != "HELD":
                raise
    return (yield from request(order, options, waits))


def _remembered(core: Core, name: str) -> Flow[list[Remembered]]:
    prefix = f"{name}/sticky"
    try:
        entries = yield core.read("LEASE.ENTRIES", prefix)
    except LeaseError as error:
        if error.code != "FORBIDDEN":
            raise
        return []
    return [
        Remembered(entry["key"][len(prefix) + 1 :], int(entry["value"]), entry["lease"])
        for entry in entries
        if re.fullmatch(r"[0-9]{1,16}", entry["value"])
    ]


def _write(core: Core, name: str, who: str, number: int, span: float, remembered: list[Remembered]) -> Flow[int | None]:
    """Records the number. Returns the lease that carries the record; None: it could not be written, which only loses the preference."""
    key, end = f"{name}/sticky/{who}", core.now() + WRITE_TIMEOUT

    def change(*words: str | int) -> Any:
        left = max(0.001, end - core.now())
        return core.do(lambda engine: engine.call(*words, "OP", engine.operation(), timeout=left))

    def renew(lease: int) -> Flow[bool]:
        left = max(0.001, end - core.now())
        terms = yield core.do(lambda engine: engine.call("LEASE.RENEW", lease, timeout=left))
        return isinstance(terms, list) and terms[0] > 0

    try:
        before = next((record for record in remembered if record.who == who), None)
        if before is not None:
            try:
                if before.number != number:
                    yield change("LEASE.PUT", before.lease, key, str(number))
                if (yield from renew(before.lease)):
                    return before.lease
            except LeaseError as error:
                if error.code in ("UNKNOWN", "UNAVAILABLE"):
                    return None
        # Not a lease of this client: closing the client must not release it.
        purpose = f"remembers slot {number} of {who}"
        words = ("LEASE.GRANT", "TTL", round(span * 1000), "HOLDER", who, "ENTRY", key, str(number), "LABEL", "purpose", purpose)
        made = yield change(*words)
        lease: int = made["lease"]
        return lease if (yield from renew(lease)) else None  # the first term of a lease is short
    except LeaseError as error:
        if error.code == "INVALID":
            text = f"slot {number} cannot be remembered for {who!r}: {error.message}"
            raise LeaseError("INVALID", text, error.facts, reason=error.reason) from None
        return None


def _keep(engine: Engine, record: int, interval: float, held: Held) -> None:
    """Renews the record until the slot is given back. Without an answer, the record lasts for the rest of its ttl."""
    timers: list[Timer] = []

    def done(value: Any, error: LeaseError | None, request: Request) -> None:
        if held.reason is None and error is None and value[0] > 0:
            plan()

    def renew() -> None:
        engine.channel.send(("LEASE.RENEW", record), done)

    def plan() -> None:
        timers[:] = [engine.timers.at(engine.clock.read().monotonic + interval, renew)]

    plan()
    held.when_over(functools.partial(_cancel, timers))


def _cancel(timers: list[Timer]) -> None:
    for timer in timers:
        timer.cancel()
