"""Takes over a lease that was passed on to the name of this holder: looks at it, claims it, renews it, and only then has it in hand.

The claim is decided in the log: of several processes with one name, one gets the lease. How long ago it was passed on is not known here, so
only a renewal sent after the claim says until when it is ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._channel import ANSWER_TIMEOUT, Request
from ._errors import LeaseError, closed_error
from ._future import Future
from ._held import Held

if TYPE_CHECKING:
    from ._engine import Engine


class Adopting:
    """``future`` gets the lease, or the error. What was claimed for a caller that has gone is given back."""

    def __init__(self, engine: Engine, lease: int, renew: str, max_hold: float | None) -> None:
        self._engine = engine
        self._lease = lease
        self._renew = renew
        self._max_hold = max_hold
        self.future: Future[Held] = Future()
        self.over = False
        self._ttl = 0.0
        self._tokens: dict[str, int] = {}
        self._claimed = False

    def begin(self) -> None:
        # Consistent: the transfer may have been answered by another server.
        words = ("LEASE.INFO", self._lease, "CONSISTENT")
        self._engine.channel.send(words, self._shown, kind="read", timeout=ANSWER_TIMEOUT)

    def _shown(self, value: Any, error: LeaseError | None, request: Request) -> None:
        engine, lease, name = self._engine, self._lease, self._engine.options.holder
        if error is not None or self.over:
            return self._fail(error)
        if not isinstance(value, dict) or value.get("status") != "live":
            return self._fail(LeaseError("GONE", f"lease {lease} has ended, or is not granted yet", {"lease": lease}))
        if value.get("holder") != name or lease in engine.renewals.held:
            here = ", and is in use here" if value.get("holder") == name else ""
            return self._fail(LeaseError("INVALID", f"lease {lease} belongs to {value.get('holder')}{here}", {"lease": lease}))
        ttl, grants = value.get("ttl"), value.get("grants")
        if not isinstance(ttl, int) or not isinstance(grants, list) or not all(map(_is_grant, grants)):
            return self._fail(LeaseError("UNKNOWN", "the server answered something else than a lease"))
        self._ttl = ttl / 1000
        self._tokens = {str(grant["resource"]): grant["token"] for grant in grants}
        # It may be open to other processes of the name, even if this one made the request: a renewal does not say which process sent it,
        # so the log decides.
        incarnation = () if engine.incarnation is None else ("INCARNATION", engine.incarnation)
        engine.channel.send(("LEASE.CLAIM", lease, *incarnation, "OP", engine.operation()), self._claim_answered).late = self._late

    def _claim_answered(self, value: Any, error: LeaseError | None, request: Request) -> None:
        if error is not None and not self._is_ours(error):
            # If it was claimed nevertheless, it lapses by itself, since no process renews it.
            return self._fail(error)
        self._claimed = True
        self._engine.introduced(self, {"lease": self._engine.incarnation or self._lease})
        if self.over:
            self._engine.give_back(self._lease, self._ttl)
        else:
            self._confirm()

    def _is_ours(self, error: LeaseError) -> bool:
        """Whether a claim was refused because the lease belongs to this process already."""
        incarnation = self._engine.incarnation
        return error.code == "HELD" and incarnation is not None and error.facts.get("incarnation") == incarnation

    def _late(self, value: Any, request: Request) -> None:
        self._engine.give_back(self._lease, self._ttl)

    def _confirm(self) -> None:
        self._engine.channel.send(("LEASE.RENEW", self._lease), self._renewed, timeout=max(1.0, self._ttl))

    def _renewed(self, value: Any, error: LeaseError | None, request: Request) -> None:
        if self.over:
            return
        engine, lease = self._engine, self._lease
        if error is not None:
            return self._fail(error)
        term = value[0] if isinstance(value, list) and len(value) == 1 else -1
        if not isinstance(term, int) or term <= 0:
            return self._fail(LeaseError("GONE", f"lease {lease} has ended", {"lease": lease}))
        held = Held(engine.clock, engine.watch, lease, self._ttl, tuple(self._tokens), self._tokens, self._renew)
        held.holder = engine.options.holder
        if not engine.renewals.believe(held, request, term / 1000):
            # The answer took longer than the term: it was given back with the loss.
            self._claimed = False
            return self._fail(held.end_reason())
        if self._max_hold is not None:
            engine.renewals.limit(held, self._max_hold)
        self._end()
        if not self.future.set_result(held):
            engine.release(held)

    def _fail(self, error: LeaseError | None) -> None:
        self._engine.introduced(self, None)
        self.stop(error)

    def stop(self, error: LeaseError | None) -> None:
        """Ends it; without an error, because the caller has gone."""
        if self.over:
            return
        self._end()
        if self._claimed:
            self._engine.give_back(self._lease, self._ttl)
        if error is None:
            self.future.cancel()
        else:
            self.future.set_exception(error)

    def close(self) -> None:
        self.stop(closed_error())

    def _end(self) -> None:
        self.over = True
        self._engine.ended(self)


def _is_grant(grant: Any) -> bool:
    return isinstance(grant, dict) and isinstance(grant.get("resource"), str) and isinstance(grant.get("token"), int)
