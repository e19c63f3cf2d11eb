"""A lease in the hands of a program: what does not depend on how the program waits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NoReturn

from ._core import Core
from ._errors import LeaseError, LeaseLost
from ._held import Held

if TYPE_CHECKING:
    from typing import SupportsIndex

    from ._engine import Engine
    from ._notices import Notices


class LeaseHandle:
    """The part of ``leasehold_client.Lease`` and ``leasehold_client.aio.Lease`` that never waits."""

    def __init__(self, core: Core, held: Held) -> None:
        self._core = core
        self._held = held

    @property
    def id(self) -> int:
        """The number of the lease. It is never given again."""
        return self._held.id

    @property
    def resources(self) -> tuple[str, ...]:
        """The names that are held."""
        return self._held.resources

    @property
    def token(self) -> int:
        """The fencing token of the first resource: greater than that of every earlier grant. 0 for a lease on nothing."""
        return next(iter(self._held.tokens.values()), 0)

    @property
    def tokens(self) -> Mapping[str, int]:
        """The fencing tokens by resource."""
        return dict(self._held.tokens)

    @property
    def ttl(self) -> float:
        """How many seconds a renewal gives, as policies allow it. The first term of a long lease is shorter."""
        return self._held.term

    @property
    def held(self) -> bool:
        """Whether it is held now. Asks the clocks: right even after this process was stopped, and without a message."""
        if self._held.held:
            return True
        if self._held.reason is None and not self._held.ending:
            self._core.owner.post(_look_at(self._held))
        return False

    def remaining(self) -> float:
        """Seconds left unless it is renewed; 0 when it is over."""
        return self._held.remaining()

    @property
    def expires_at(self) -> float | None:
        """When it ends unless it is renewed, as ``time.time()`` counts; ``None`` when it is over. For people and logs: ask ``held``."""
        return self._core.engine.clock.wall() + self._held.remaining() if self._held.held else None

    def assert_held(self) -> None:
        """Raises ``LeaseLost`` (or ``GONE`` after a release) unless it is held now. Call it before each step that must not run twice."""
        self._core.must_hold(self._held)

    def touch(self) -> None:
        """Reports activity, for ``renew="on-activity"``. Cheap: call it as often as you like."""
        self._held.touched = True

    def on_lost(self, callback: Callable[[LeaseLost], None]) -> None:
        """Calls ``callback`` with the reason once the lease is lost, on a thread of the client. At once if it is lost already.

        The resource stays blocked until the callback has returned, or the last term has run.
        """
        self._held.reported = True

        def add(engine: Engine) -> None:
            reason = self._held.reason
            if reason is None:
                self._held.callbacks.append(callback)
            elif isinstance(reason, LeaseLost):
                engine.later(lambda: callback(reason))

        self._core.do(add)

    @property
    def at_risk(self) -> bool:
        """Whether a quarter of its term is left, or less: renewals stay unanswered. Asks the clocks."""
        return self._held.held and self._held.in_jeopardy

    def on_jeopardy(self, callback: Callable[[float], None]) -> None:
        """Calls ``callback`` with the seconds left each time the lease comes into jeopardy, while there is time to stop the work.

        At once if it is. An answered renewal ends the jeopardy; the next one calls again.

        >>> lease.on_jeopardy(lambda left: print(f"no renewal was answered; lost in {left:.1f} s"))
        """
        self._core.do(lambda engine: None if self._held.reason is not None else self._notices(engine).on_jeopardy(callback))

    def on_recalled(self, callback: Callable[[str], None]) -> None:
        """Calls ``callback`` with the name of the client that asks the holders to release (``recall=True``, ``leases.recall``).

        The name may be empty. The lease stays held.
        """
        self._core.do(lambda engine: None if self._held.reason is not None else self._notices(engine).on_recalled(callback))

    def _notices(self, engine: Engine) -> Notices:
        if self._held.notices is None:
            from ._notices import Notices

            self._held.notices = Notices(engine, self._held)
        return self._held.notices

    @property
    def reason(self) -> LeaseError | None:
        """Why it is over; ``None`` while it is held."""
        return None if self._held.held else self._held.end_reason()

    def __repr__(self) -> str:
        return f"<Lease {self.id} on {', '.join(self.resources) or 'nothing'}{'' if self._held.held else ', over'}>"

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        """For ``copy`` and ``pickle``."""
        raise LeaseError(
            "INVALID",
            f"{self._held.name} cannot be copied or pickled: one process holds it, through one object. To write under it elsewhere, send"
            " lease.token; to let another holder go on with it, use lease.transfer() here and leases.adopt() there",
            self._held.facts,
        )


def _look_at(held: Held) -> Callable[[Engine], None]:
    def look(engine: Engine) -> None:
        if held.over:
            engine.renewals.expire(held)
        else:
            engine.look_at_clocks()

    return look
