"""The ``async with`` block of ``leases.request``."""

from __future__ import annotations

from types import TracebackType

from .._core import AcquireOptions, Core, Names
from .._errors import LeaseError
from .._flow import Flow
from .._held import Held
from ._flow import run
from ._lease import Lease


async def in_hand(core: Core, flow: Flow[Held]) -> Lease:
    """The handle of a lease. A caller that is cancelled before it has the handle leaves no lease behind."""
    granted: list[Held] = []
    try:
        return await run(core.in_hand(flow, Lease, granted))
    except BaseException:
        core.abandon(granted)
        raise


class Request:
    """As that of ``leasehold_client.Leases.request``. It needs only the core, so that clients of threads use it for coroutines as well."""

    __slots__ = ("_core", "_lease", "_names", "_options")

    def __init__(self, core: Core, names: Names, options: AcquireOptions) -> None:
        self._core = core
        self._names = names
        self._options = options
        self._lease: Lease | None = None

    async def __aenter__(self) -> Lease:
        if self._lease is not None:
            raise LeaseError("INVALID", "this block of request() has begun already: call request() for each block")
        lease = await in_hand(self._core, self._core.obtain(self._core.asked("request", self._names, self._options, True)))
        self._lease = await lease.__aenter__()
        return lease

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        lease, self._lease = self._lease, None
        assert lease is not None
        lost = self._core.unreported_loss(lease._held) if kind is None else None
        await lease.__aexit__(kind, error, trace)
        if lost is not None:
            raise lost
