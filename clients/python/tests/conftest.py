from __future__ import annotations

from collections.abc import Iterator

import pytest

from leasehold.testing import World


@pytest.fixture
def world() -> Iterator[World]:
    yield World()
