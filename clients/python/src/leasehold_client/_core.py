"""What ``leasehold_client`` and ``leasehold_client.aio`` share: checked options, and the flows behind their methods."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

from ._duration import Duration, seconds
from ._errors import LeaseError
from ._flow import Ask, Flow
from ._future import Future
from ._held import Held
from ._nesting import leases_around
from ._request import FOREVER, INTERVALS, AcquireRequest
from ._ttl import Ttl, ttl_range

if TYPE_CHECKING:
    from ._engine import Engine
    from ._handle import LeaseHandle
    from ._owner import Owner

T = TypeVar("T")
H = TypeVar("H")

Names = str | Iterable[str]
Parent = Any
"""A lease, its number, or an object that has one: a session, or a term of an election."""


class AcquireOptions(TypedDict, total=False):
    """Options of ``acquire``, ``try_acquire``, ``request`` and ``exclusive``.

    * ``ttl``: how long the lease lasts without a renewal, that is, how long others wait after a crash. That of ``connect`` by default.
      ``Ttl(preferred, min, max)`` is adjusted to what policies allow, instead of refused.
    * ``wait``: how long to wait for the grant, greater than 0. Until granted by default.
    * ``mode``: ``"exclusive"``, or ``"shared"`` beside other shared holders.
    * ``units``: of a resource whose policy has a capacity; 1 by default.
    * ``permits``: how many units may be in use at once, without a policy; a grant keeps to the smallest number of all leases on the name.
      ``leases.semaphore(name, permits=3)`` is the usual way.
    * ``covers``: claim each name with all names below it: ``lib`` with ``lib/a.py``.
      The leases of the ``with`` blocks around are no obstacle.
    * ``priority``: -1000 to 1000, higher first; 0 by default.
    * ``steal``: ``True`` ends the present holders and waits until they have stopped; ``"force"`` does not wait for that.
    * ``renew``: ``"half"`` (of the term), ``"continuous"`` (eight times per term) or ``"on-activity"`` (after ``lease.touch()``).
    * ``parent``: ends with that lease or session.
    * ``labels``, ``entries``: texts that others see; entries are keys of their own, and are gone with the lease.
    * ``grace``: after the ttl it is *suspect* for this long: granted to no other holder, and recovered by a renewal.
    * ``max_life``: the server ends the lease this long after the grant.
    * ``max_hold``: this process gives the lease up after this long, whatever its work is doing, like a timeout of a job.
    * ``any``: this many of the named resources, instead of all of them.
    * ``recall``: tell the present holders that this caller waits.
    * ``reuse``: if this process has a lease on exactly these names, that lease, renewed, instead of a wait for itself. So does a process
      that was started again and named its former incarnation to ``connect``. Two tasks of one process that ask so share the lease.
    * ``on_wait``: called with the place in the queue, 0 being next, whenever it changes.
    """

    ttl: Duration | Ttl
    wait: Duration | None
    mode: str
    units: int
    permits: int
    covers: bool
    priority: int
    steal: bool | str
    renew: str
    parent: Parent
    labels: Mapping[str, str]
    entries: Mapping[str, str]
    grace: Duration
    max_life: Duration
    max_hold: Duration
    any: int
    recall: bool
    reuse: bool
    on_wait: Callable[[int], None]


_OPTIONS = frozenset(AcquireOptions.__annotations__)


class Core:
    """An engine, whatever drives it, and the default ttl."""

    def __init__(self, engine: Engine, owner: Owner, ttl: float) -> None:
        self.engine = engine
        self.owner = owner
        self.ttl = ttl

    def do(self, work: Callable[[Engine], T]) -> T:
        return self.owner.do(work)

    def read(self, *words: str | int) -> Future[Any]:
        return self.owner.do(lambda engine: engine.read(*words))

    def change(self, *words: str | int) -> Future[Any]:
        return self.owner.do(lambda engine: engine.change(*words))

    def break_(self, resource: str, after: Duration | None, by: str) -> Future[Any]:
        delay = () if after is None else ("AFTER", math.ceil(seconds(after, "after") * 1000))
        return self.change("LEASE.BREAK", resource, *delay, "BY", by)

    def revoke(self, lease: int | None, holder: str | None, prefix: str | None, force: bool, by: str) -> Future[Any]:
        targets = {"LEASE": lease, "HOLDER": holder, "PREFIX": prefix}
        named = [(word, value) for word, value in targets.items() if value is not None]
        if len(named) != 1:
            raise LeaseError("INVALID", "revoke takes one of lease, holder and prefix")
        return self.change("LEASE.REVOKE", *named[0], *(["FORCE"] if force else []), "BY", by)

    def sleep(self, duration: float) -> Future[None]:
        return self.owner.do(lambda engine: engine.sleep(duration))

    def now(self) -> float:
        return self.engine.clock.read().monotonic

    # Acquiring

    def asked(self, call: str, names: Names | None, options: Mapping[str, Any], waits: bool) -> AcquireRequest:
        """Checks the options. ``names`` is None for a lease on nothing."""
        holding = leases_around(self)
        if not options:
            return AcquireRequest(() if names is None else checked_names(names), self.ttl, FOREVER if waits else None, holding=holding)
        unknown = sorted(set(options) - _OPTIONS)
        if unknown:
            known = ", ".join(sorted(_OPTIONS))
            raise LeaseError("INVALID", f"{call} has no option {unknown[0]}; it has {known}", {"option": unknown[0]})
        if not waits and options.get("wait") is not None:
            raise LeaseError("INVALID", f"{call} does not wait: leave out wait, or use acquire", {"option": "wait"})
        mode, renew, steal = options.get("mode", "exclusive"), options.get("renew", "half"), options.get("steal", False)
        if mode not in ("exclusive", "shared"):
            raise LeaseError("INVALID", f"mode must be 'exclusive' or 'shared', not {mode!r}", {"option": "mode"})
        check_renew(renew)
        if steal and not waits:
            raise LeaseError("INVALID", "a steal waits until the present holders have stopped: use acquire", {"option": "steal"})
        reuse = bool(options.get("reuse", False))
        if reuse and (names is None or options.get("any") is not None):
            raise LeaseError("INVALID", "reuse needs resources, and not any", {"option": "reuse"})
        ttl, limits = (self.ttl, None) if options.get("ttl") is None else ttl_range(options["ttl"])
        return AcquireRequest(
            () if names is None else checked_names(names),
            ttl,
            wait=_wait(call, options.get("wait")) if waits else None,
            mode=mode,
            units=options.get("units"),
            permits=options.get("permits"),
            covers=bool(options.get("covers", False)),
            priority=options.get("priority"),
            parent=_parent(options.get("parent")),
            any=options.get("any"),
            labels=dict(options.get("labels") or {}),
            entries=dict(options.get("entries") or {}),
            grace=None if options.get("grace") is None else seconds(options["grace"], "grace"),
            max_life=None if options.get("max_life") is None else seconds(options["max_life"], "max_life"),
            max_hold=None if options.get("max_hold") is None else seconds(options["max_hold"], "max_hold"),
            renew=renew,
            recall=bool(options.get("recall", False)),
            steal="" if not steal else "force" if steal == "force" else "after",
            on_wait=options.get("on_wait"),
            ttl_limits=limits,
            reuse=reuse,
            holding=holding,
        )

    def obtain(self, asked: AcquireRequest) -> Flow[Held]:
        """A lease in hand. A caller that is interrupted or cancelled leaves no lease behind."""
        return (yield from self._begun(lambda engine: engine.acquire(asked)))

    def _begun(self, begin: Callable[[Engine], Future[Held]]) -> Flow[Held]:
        begun: list[Future[Held]] = []  # known here even if an interrupt comes between the start and what follows
        try:
            held: Held = yield Ask(self.owner, lambda engine: _noted(begin(engine), begun))
            return held
        except BaseException as error:
            if begun and not (isinstance(error, LeaseError) and begun[0].done()):
                self.owner.post(lambda engine: engine.cancel(begun[0]))
            raise

    def in_hand(self, flow: Flow[Held], make: Callable[[Core, Held], H], granted: list[Held]) -> Flow[H]:
        """The handle of a lease. ``granted`` gets the lease, for ``abandon``: its caller may be interrupted before it has the handle."""
        held = yield from flow
        granted.append(held)
        return make(self, held)

    def abandon(self, granted: list[Held]) -> None:
        """The caller was interrupted before it had the handle."""
        for held in granted:
            self.owner.post(functools.partial(_abandon, held))

    def try_obtain(self, asked: AcquireRequest, make: Callable[[Core, Held], H], granted: list[Held]) -> Flow[H | None]:
        try:
            return (yield from self.in_hand(self.obtain(asked), make, granted))
        except LeaseError as error:
            if error.code == "HELD":
                return None
            raise

    def adopt(self, lease: int, renew: str, max_hold: Duration | None) -> Flow[Held]:
        """As ``obtain``, for a lease that was passed on to the name of this holder."""
        if not isinstance(lease, int) or isinstance(lease, bool) or lease < 1:
            raise LeaseError("INVALID", f"adopt takes the number of a lease, as transfer() returns it, not {lease!r}")
        check_renew(renew)
        limit = None if max_hold is None else seconds(max_hold, "max_hold")
        return (yield from self._begun(lambda engine: engine.adopt(lease, renew, limit)))

    def release(self, held: Held) -> Flow[None]:
        yield Ask(self.owner, lambda engine: engine.release(held))

    def transfer(self, held: Held, to: str) -> Flow[int]:
        """The holder stops first: from here on it is not held."""
        self.must_hold(held)
        self.owner.do(lambda engine: engine.renewals.end(held, f"transferred to {to}"))
        lease: int = yield self.change("LEASE.TRANSFER", held.id, "TO", to, "STOPPED")
        return lease

    def must_hold(self, held: Held) -> None:
        if not held.held:
            reason = held.end_reason()
            held.reported = True
            if held.over and held.reason is None:
                self.owner.post(lambda engine: engine.renewals.expire(held))
            raise reason

    def unreported_loss(self, held: Held) -> LeaseError | None:
        """The loss of a lease whose user could not know of it. Asks the clocks: a timer may be late."""
        if held.held or held.reported:
            return None
        reason = held.end_reason()
        return reason if reason.code == "LOST" else None


def _abandon(held: Held, engine: Engine) -> None:
    engine.abandon(held)


def _noted(future: Future[T], begun: list[Future[T]]) -> Future[T]:
    begun.append(future)
    return future


def checked_names(names: Names) -> tuple[str, ...]:
    if isinstance(names, str):
        return (names,)
    named = tuple(names)
    if not named:
        raise LeaseError("INVALID", "no resource is named. For a lease without resources use grant()")
    for name in named:
        if not isinstance(name, str):
            raise LeaseError("INVALID", f"a resource is a text such as 'jobs/nightly', or several of them, not {type(name).__name__}")
    return tuple(dict.fromkeys(named))


def check_renew(renew: str) -> None:
    if renew not in INTERVALS:
        raise LeaseError("INVALID", f"renew must be half, continuous or on-activity, not {renew!r}", {"option": "renew"})


def _wait(call: str, wait: Duration | None) -> float:
    if wait is None:
        return FOREVER
    limit = seconds(wait, "wait")
    if limit == 0:
        raise LeaseError("INVALID", f"wait of {call} must be greater than 0: use try_acquire to not wait", {"option": "wait"})
    return limit


def _parent(parent: Any) -> Held | int | None:
    if parent is None or (isinstance(parent, int) and not isinstance(parent, bool)):
        return parent
    inner: Any = getattr(parent, "_held", None)
    if isinstance(inner, Held):
        return inner
    lease: LeaseHandle | None = getattr(parent, "lease", None)
    if lease is not None:
        return _parent(lease)
    raise LeaseError("INVALID", f"parent must be a lease, a session or the number of a lease, not {parent!r}", {"option": "parent"})
