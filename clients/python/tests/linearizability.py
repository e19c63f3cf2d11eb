"""Whether a history of one lock is linearizable: its calls can be put in an order that agrees with time and with the rules of a lock.

The search is that of Wing and Gong, with Lowe's memory of what was tried. The lock:

* ``acquire`` returns a token that is greater than all before, and only while no client holds the lock.
* ``held`` is the refusal of a call that does not wait: another client holds it. Or a call of another client is under way: it may have
  been granted a lease over a connection that broke, and give it back before it asks again.
* ``attempt`` is an acquire that failed. It explains refusals meanwhile, and is no hold.
* ``release`` ends the hold of a token. One whose outcome is unknown takes effect at any time after it was called, or never.
"""

from __future__ import annotations

from typing import NamedTuple

NEVER = float("inf")


class Call(NamedTuple):
    """One call: when it was made, when it returned (``NEVER``: its outcome is unknown), and what it said."""

    kind: str
    token: int
    called: float
    returned: float


class _Lock(NamedTuple):
    holder: int = 0
    highest: int = 0

    def after(self, call: Call, excused: bool) -> _Lock | None:
        """The lock after a call; None: the call cannot happen now. ``excused``: it may be refused although the lock is free."""
        if call.kind == "acquire":
            return _Lock(call.token, call.token) if self.holder == 0 and call.token > self.highest else None
        if call.kind == "held":
            return self if self.holder != 0 or excused else None
        return _Lock(0, self.highest) if self.holder == call.token else None


def linearizable(history: list[Call]) -> bool:
    """Calls that returned must all be in the order; of the others, any."""
    calls = sorted((call for call in history if call.kind != "attempt"), key=lambda call: call.called)
    others = [call for call in history if call.kind in ("acquire", "attempt")]
    excused = {
        call: any(other.called < call.returned and call.called < other.returned for other in others)
        for call in calls
        if call.kind == "held"
    }
    required = frozenset(index for index, call in enumerate(calls) if call.returned != NEVER)
    tried: set[tuple[frozenset[int], _Lock]] = set()
    stack: list[tuple[frozenset[int], _Lock]] = [(frozenset(), _Lock())]
    while stack:
        done, lock = stack.pop()
        if required <= done:
            return True
        if (done, lock) in tried:
            continue
        tried.add((done, lock))
        # A call may be next if it was made before every other one that is left had returned.
        first = min(calls[index].returned for index in required - done)
        for index, call in enumerate(calls):
            if call.called > first:
                break
            if index not in done:
                after = lock.after(call, excused.get(call, False))
                if after is not None:
                    stack.append((done | {index}, after))
    return False
