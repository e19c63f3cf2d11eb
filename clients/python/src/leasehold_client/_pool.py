"""Pools, without regard to how their user waits."""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Mapping
from typing import Any

from ._core import Core
from ._duration import Duration, in_words, seconds
from ._errors import LeaseError
from ._flow import Flow
from ._held import Held
from ._request import FOREVER
from ._watching import Watching, watch_flow
from ._widening import MAX_RESOURCES, Member, Widening

DEVICES = "CUDA_VISIBLE_DEVICES"


class PoolCore:
    """What the sync and asyncio forms of a pool share."""

    def __init__(self, core: Core, name: str, match: Mapping[str, str] | None) -> None:
        self.core = core
        self.name = name
        self.match = dict(match or {})

    def key(self, member: str) -> str:
        return f"pool/{self.name}/{member}"

    def offer(self, member: str, labels: Mapping[str, str] | None, units: int, ttl: Duration | None) -> Flow[Held]:
        """The capacity is set first: a taker must find it in force."""
        if units != 1:
            yield self.core.do(lambda engine: engine.call("LEASE.POLICY", "SET", f"{self.name}/{member}", "capacity", units))
        value = json.dumps({"labels": dict(labels or {}), "units": units}, separators=(",", ":"))
        options: dict[str, Any] = {"entries": {self.key(member): value}}
        if ttl is not None:
            options["ttl"] = ttl
        return (yield from self.core.obtain(self.core.asked("offer", None, options, False)))

    def members(self, match: Mapping[str, str] | None) -> Flow[list[Member]]:
        """The members that match. An entry that is no offer is passed over: it must not keep all takers from taking."""
        entries = yield self.core.read("LEASE.ENTRIES", f"pool/{self.name}")
        return [member for entry in entries if (member := self._member(match, entry)) is not None]

    def _member(self, match: Mapping[str, str] | None, entry: dict[str, Any]) -> Member | None:
        try:
            offer = json.loads(entry["value"])
            labels, units = offer["labels"], offer["units"]
        except (KeyError, TypeError, ValueError):
            return None
        if not isinstance(labels, dict) or not isinstance(units, int) or units < 1:
            return None
        wanted = {**self.match, **(match or {})}
        if any(labels.get(name) != value for name, value in wanted.items()):
            return None
        member = str(entry["key"])[len(self.key("")) :]
        return Member(member, f"{self.name}/{member}", labels, units)

    def take(self, count: int, match: Mapping[str, str] | None, options: Mapping[str, Any], waits: bool) -> Flow[tuple[Held, list[Member]]]:
        """Any ``count`` of the members that match, all at once."""
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise LeaseError("INVALID", f"the count comes first, as in take(2): not {count!r}")
        asked = self.core.asked("take", f"{self.name}/-", {**options, "any": count}, waits)
        units = asked.units
        end = self.core.now() + (asked.wait or 0.0)
        watching: Watching | None = None
        try:
            while True:
                members = yield from self.members(match)
                fitting = [member for member in members if member.units >= (units or 1)]
                if len(fitting) >= count:
                    break
                if asked.wait is None:
                    raise self._too_few(len(fitting), count)
                if watching is None:
                    # Watch first, then read again: an offer between the two must not be missed.
                    watching = yield from watch_flow(self.core, f"pool/{self.name}")
                    continue
                yield from self._changed(watching, asked.wait, end)
        finally:
            if watching is not None:
                watching.close()
        chosen = fitting[:MAX_RESOURCES]
        left = asked.wait if asked.wait in (None, FOREVER) else max(0.001, end - self.core.now())
        # Without ``units`` all of each member: then no other taker is on it.
        units_of = {member.resource: member.units for member in chosen if member.units > 1} if units is None else {}
        widening = Widening(self.core.engine, f"pool/{self.name}", chosen, units, functools.partial(self._member, match))
        names = tuple(member.resource for member in chosen)
        request = asked._replace(names=names, wait=left, units_of=units_of, on_queued=widening.queued)
        try:
            held = yield from self.core.obtain(request)
        finally:
            self.core.owner.post(lambda engine: widening.end())
        return held, [widening.members[name] for name in held.tokens]

    def _changed(self, watching: Watching, wait: float, end: float) -> Flow[None]:
        news = watching.next()
        if wait == FOREVER:
            yield news
            return
        over = self.core.sleep(max(0.0, end - self.core.now()))
        # Whichever comes first.
        over.add_done_callback(lambda _: news.cancel())
        try:
            yield news
        except BaseException:
            if not over.done() or over.cancelled():
                raise
            text = f"the pool {self.name} had too few members that match for {in_words(wait)}"
            raise LeaseError("TIMEOUT", text, {"pool": self.name, "waited": round(wait * 1000)}) from None
        finally:
            over.cancel()

    def _too_few(self, members: int, count: int) -> LeaseError:
        text = f"{members} members of the pool {self.name} match, fewer than the {count} to take"
        return LeaseError("HELD", text, {"pool": self.name, "members": members, "count": count})


def device_of(member: Member) -> str | None:
    """The device of a member: its label ``device``, or the digits at the end of its name. None: it is no device."""
    if "device" in member.labels:
        return member.labels["device"]
    digits = re.search(r"(\d+)$", member.member)
    return digits[1] if digits else None


class DeviceEnvironment:
    """Sets ``CUDA_VISIBLE_DEVICES`` while devices are taken. CUDA reads it once, so take before you import what uses it."""

    def __init__(self, members: list[Member], variable: str | None) -> None:
        devices = [device_of(member) for member in members]
        self.devices = tuple(device for device in devices if device is not None)
        self._variable = variable if variable is not None and len(self.devices) == len(members) else None
        self._before: str | None = None

    def enter(self) -> None:
        if self._variable is not None:
            self._before = os.environ.get(self._variable)
            os.environ[self._variable] = ",".join(self.devices)

    def leave(self) -> None:
        variable, self._variable = self._variable, None
        if variable is None:
            return
        if self._before is None:
            os.environ.pop(variable, None)
        else:
            os.environ[variable] = self._before


def take_options(expect: Duration | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of ``acquire`` for a take. ``expect`` is told to waiters and planners as a label."""
    given = dict(options)
    if expect is not None:
        given["labels"] = {**given.get("labels", {}), "expect": str(round(seconds(expect, "expect") * 1000))}
    return given
