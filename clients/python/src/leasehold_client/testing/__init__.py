"""Leases for tests, in virtual time: nothing sleeps, and the server can fall silent, lose answers, or be away.

The pytest plugin has a fixture ``lease_world``:

>>> def test_stops_when_lost(lease_world):
...     leases = lease_world.connect()
...     with leases.acquire("jobs/nightly", ttl=10) as lease:
...         lease_world.stop_answering()
...         lease_world.advance(10)
...         assert lease.lost.is_set()
"""

from ._clock import ManualClock
from ._server import MemoryServer
from ._world import World

__all__ = ["ManualClock", "MemoryServer", "World"]
