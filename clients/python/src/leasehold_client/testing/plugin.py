"""The pytest plugin of Leasehold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from . import World


@pytest.fixture
def lease_world() -> Iterator[World]:
    """A server in memory and a clock that the test moves. ``lease_world.connect()`` gives leases."""
    from . import World  # only for tests that use it

    yield World()
