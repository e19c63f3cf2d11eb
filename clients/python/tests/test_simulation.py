"""Three clients, one resource and bad luck: whatever happens, no two hold it, tokens grow, and what was lost stays lost."""

from __future__ import annotations

import random

import pytest

from leasehold_client._future import Future
from leasehold_client._handle import LeaseHandle
from leasehold_client._held import Held
from leasehold_client._sync import Leases
from leasehold_client.testing import World

from .test_waiting import begin


class Program:
    """One client that acquires, holds and releases."""

    def __init__(self, leases: Leases, dice: random.Random) -> None:
        self._leases = leases
        self._dice = dice
        self._pending: Future[Held] | None = None
        self.lease: LeaseHandle | None = None
        self.tokens: list[int] = []
        self._was_over: list[LeaseHandle] = []

    def act(self) -> None:
        """Something that a program may do next."""
        if self.lease is not None:
            held = self.lease._held
            if not self.lease.held:
                # After a jump of the wall clock it is not held until it is renewed. That is no end.
                if held.over or held.ending or held.reason is not None:
                    self._was_over.append(self.lease)
                    self.lease = None
            elif self._dice.random() < 0.3:
                self._leases._core.owner.post(lambda engine: engine.release(held))
                assert not self.lease.held
                self.lease = None
        elif self._pending is None:
            wait = self._dice.choice([{}, {"wait": self._dice.uniform(0.5, 20)}])
            self._pending = begin(self._leases, "k", ttl=self._dice.choice([1, 3, 10]), **wait)
        elif self._dice.random() < 0.05:
            pending, self._pending = self._pending, None
            self._leases._core.owner.post(lambda engine: engine.cancel(pending))

    def look(self) -> bool:
        if self._pending is not None and self._pending.done():
            pending, self._pending = self._pending, None
            if not pending.cancelled() and pending.exception() is None:
                self.lease = LeaseHandle(self._leases._core, pending.result())
                self.tokens.append(self.lease.token)
        assert not any(lease.held for lease in self._was_over)
        return self.lease is not None and self.lease.held


def hurt(world: World, dice: random.Random) -> None:
    """Something that a network, a machine or an operator may do next."""
    what = dice.randrange(16)
    one = dice.choice(world._owners)
    if what == 0:
        world.stop_answering()
    elif what == 1:
        world.lose_answers()
    elif what in (8, 9):
        one.silent = True
    elif what in (10, 11):
        one.losing = True
    elif what == 2:
        one.cut()
        world.settle()
    elif what == 3:
        world.unreachable()
    elif what == 4:
        world.stall(dice.choice([0.2, 2, 15]))
    elif what == 5:
        world.suspend(dice.choice([0.1, 2, 15]))
    elif what == 6:
        world.clock.step_wall(dice.choice([-30, 0.3, 30]))
    elif what == 7 and world.server._leases:
        world.server.revoke(dice.choice(list(world.server._leases)))
    else:
        world.reachable = True
        world.answer()


@pytest.mark.parametrize("seed", range(25))
def test_no_two_hold_it_whatever_happens(seed: int) -> None:
    dice = random.Random(seed)
    world = World()
    programs = [Program(world.connect(name), dice) for name in "abc"]
    granted: list[int] = []
    for _ in range(250):
        dice.choice(programs).act()
        if dice.random() < 0.15:
            hurt(world, dice)
        world.advance(dice.choice([0, 0.01, 0.1, 0.5, 2]))
        holders = [program for program in programs if program.look()]
        assert len(holders) <= 1
        for program in holders:
            assert program.lease is not None
            if not granted or program.lease.token != granted[-1]:
                assert not granted or program.lease.token > granted[-1]
                granted.append(program.lease.token)
    world.reachable = True
    world.answer()
    for _ in range(400):
        for program in programs:
            program.act()
        world.advance(0.5)
        assert len([program for program in programs if program.look()]) <= 1
    assert all(program.tokens for program in programs)  # everyone has had its turn
