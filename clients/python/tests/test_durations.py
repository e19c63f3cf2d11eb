"""Durations as numbers, texts and timedeltas."""

from __future__ import annotations

from datetime import timedelta

import pytest

import leasehold_client
from leasehold_client import Invalid, Ttl
from leasehold_client.testing import World


def test_a_ttl_is_a_number_a_text_or_a_timedelta(world: World) -> None:
    leases = world.connect(ttl=timedelta(seconds=20))
    for ttl in (12, 12.0, "12s", "12000ms", timedelta(seconds=12), timedelta(milliseconds=12_000)):
        with leases.acquire("k", ttl=ttl) as lease:
            assert lease.ttl == 12
    with leases.acquire("k") as lease:
        assert lease.ttl == 20
    with leases.acquire("k", ttl=Ttl(timedelta(minutes=1), min="10s", max=timedelta(minutes=2))):
        pass
    with leases.acquire("k", wait=timedelta(seconds=1), grace=timedelta(seconds=1), max_hold=timedelta(hours=1)):
        pass


@pytest.mark.parametrize("ttl", [timedelta(seconds=-1), -1, float("nan"), True, "12", "12x", None.__class__, object()])
def test_what_is_no_duration_is_refused(world: World, ttl: object) -> None:
    with pytest.raises(Invalid, match="ttl must be seconds, a text such as '30s', '5m' or '1h30m', or a timedelta, not"):
        world.connect().acquire("k", ttl=ttl)  # type: ignore[arg-type]


def test_the_version_is_that_of_the_project() -> None:
    import json
    from pathlib import Path

    package = Path(__file__).resolve().parents[3] / "package.json"
    assert leasehold_client.__version__ == json.loads(package.read_text())["version"]
