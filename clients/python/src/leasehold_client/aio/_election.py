"""Elections for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING

from .._duration import Duration
from .._election import Candidacy, Leader, leader_after, leader_of
from ._flow import LoopCall, run
from ._lease import Lease

if TYPE_CHECKING:
    from ._leases import Leases


class Term:
    """As ``leasehold_client.election.Term``."""

    def __init__(self, lease: Lease, candidacy: Candidacy) -> None:
        self._candidacy = candidacy
        #: The lease of the office.
        self.lease = lease
        #: Set when the work must end: the office is lost, or the leader has resigned.
        self.ended = asyncio.Event()
        self.successor: str | None = None
        lease._held.when_over(LoopCall(self.ended.set))

    @property
    def token(self) -> int:
        """The fencing token of this term, greater than that of every earlier term."""
        return self.lease.token

    @property
    def leads(self) -> bool:
        """Whether this process leads now. Asks the clocks."""
        return not self.ended.is_set() and self.lease.held

    def assert_leads(self) -> None:
        """Raises ``LeaseLost`` when the office is lost."""
        self.lease.assert_held()

    def resign(self, successor: str | None = None) -> None:
        """Sets ``ended``. When the work has ended, the office goes to the next candidate, or to the named one."""
        self.successor = successor
        if not self.ended.is_set():
            self.ended.set()
            self._candidacy.must_end(self.lease._held, lambda: self.successor)


class Election:
    """As ``leasehold_client.election.Election``.

    >>> async for term in leases.election("scheduler", ttl=10).terms():
    ...     while term.leads:
    ...         await schedule(term.token)
    """

    def __init__(
        self, leases: Leases, name: str, *, ttl: Duration = 10, priority: int = 0, budget: Duration | None = None, yields: bool = False
    ) -> None:
        self._leases = leases
        self._candidacy = Candidacy(leases._core, name, ttl, priority, budget, yields)
        self._term: Term | None = None

    @property
    def term(self) -> Term | None:
        """The present term, if this process leads."""
        return self._term

    async def terms(self) -> AsyncIterator[Term]:
        """Stands for election again and again. The loop body is the term: leaving it leaves office. ``stop`` ends the loop."""
        while (held := await run(self._candidacy.stand())) is not None:
            term = self._term = Term(Lease(self._candidacy.core, held), self._candidacy)
            self._candidacy.on_stop = LoopCall(term.resign)
            end_watch = self._candidacy.begin_term(held, LoopCall(term.resign))
            try:
                yield term
            finally:
                end_watch()
                term.ended.set()
                self._term = self._candidacy.on_stop = None
                await run(self._candidacy.leave(held, term.successor))

    async def lead(self, work: Callable[[Term], Awaitable[None]]) -> None:
        """Runs ``work`` for each term, one after another, until ``stop``."""
        async for term in self.terms():
            await work(term)

    def resign(self, successor: str | None = None) -> None:
        """Resigns, if this process leads."""
        if self._term is not None:
            self._term.resign(successor)

    def stop(self) -> None:
        """Ends the candidacy: a wait ends, and the present term is told to end."""
        self._candidacy.stop()

    async def leader(self) -> Leader | None:
        """The present leader."""
        return await run(self._candidacy.leader())

    async def observe(self) -> AsyncIterator[Leader | None]:
        """The leader now, and whenever it changes; ``None`` between terms."""
        async with self._leases.watch(self._candidacy.office) as events:
            leader = leader_of(await self._leases.show(self._candidacy.office))
            yield leader
            async for revision in events:
                if revision[0].get("type") == "resync":
                    following = leader_of(await self._leases.show(self._candidacy.office))
                else:
                    following = leader_after(leader, revision)
                if following != leader:
                    leader = following
                    yield leader
