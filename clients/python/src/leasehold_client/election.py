"""Elections for threads: one leader at a time, one term of office after another."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ._duration import Duration
from ._election import Candidacy, Leader, leader_after, leader_of
from ._flow import run

if TYPE_CHECKING:
    from ._sync import Lease, Leases

__all__ = ["Election", "Leader", "Term"]


class Term:
    """One term of office."""

    def __init__(self, lease: Lease, candidacy: Candidacy) -> None:
        self._candidacy = candidacy
        #: The lease of the office.
        self.lease = lease
        #: Set when the work must end: the office is lost, or the leader has resigned.
        self.ended = threading.Event()
        self.successor: str | None = None
        lease._held.when_over(self.ended.set)

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
    """A candidate for an office. Get one from ``leases.election(name)``.

    >>> election = leases.election("scheduler", ttl=10)
    >>> for term in election.terms():
    ...     while term.leads:
    ...         schedule(term.token)
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

    def terms(self) -> Iterator[Term]:
        """Stands for election again and again. The loop body is the term: leaving it leaves office. ``stop`` ends the loop."""
        from ._sync import Lease

        wait = self._candidacy.core.owner.wait
        while (held := run(self._candidacy.stand(), wait)) is not None:
            term = self._term = Term(Lease(self._candidacy.core, held), self._candidacy)
            self._candidacy.on_stop = term.resign
            end_watch = self._candidacy.begin_term(held, term.resign)
            try:
                yield term
            finally:
                end_watch()
                term.ended.set()
                self._term = self._candidacy.on_stop = None
                run(self._candidacy.leave(held, term.successor), wait)

    def lead(self, work: Callable[[Term], None]) -> None:
        """Runs ``work`` for each term, one after another, until ``stop``."""
        for term in self.terms():
            work(term)

    def resign(self, successor: str | None = None) -> None:
        """Resigns, if this process leads."""
        if self._term is not None:
            self._term.resign(successor)

    def stop(self) -> None:
        """Ends the candidacy, from any thread: a wait ends, and the present term is told to end."""
        self._candidacy.stop()

    def leader(self) -> Leader | None:
        """The present leader."""
        return run(self._candidacy.leader(), self._candidacy.core.owner.wait)

    def observe(self) -> Iterator[Leader | None]:
        """The leader now, and whenever it changes; ``None`` between terms."""
        with self._leases.watch(self._candidacy.office) as events:
            leader = leader_of(self._leases.show(self._candidacy.office))
            yield leader
            for revision in events:
                if revision[0].get("type") == "resync":
                    following = leader_of(self._leases.show(self._candidacy.office))
                else:
                    following = leader_after(leader, revision)
                if following != leader:
                    leader = following
                    yield leader
