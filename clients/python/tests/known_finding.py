"""Tests of known findings (sim/findings.ts): they state the correct behaviour and are expected to fail.

When a finding is fixed, its tests fail, so that the marks are removed. Only a failed assertion inside ``claim`` counts as the expected
failure: errors of the set-up fail the test as always. A test that fails as expected counts as passed, not as skipped: no test may be
skipped in CI.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec

P = ParamSpec("P")


class ClaimFailed(Exception):
    """The expected failure."""


@contextmanager
def claim() -> Iterator[None]:
    """Around the assertions that fail today."""
    try:
        yield
    except AssertionError as error:
        raise ClaimFailed(str(error)) from error


def known_finding(name: str) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """The test passes only if its claim fails."""

    def decorate(test: Callable[P, None]) -> Callable[P, None]:
        @functools.wraps(test)
        def expects_failure(*args: P.args, **kwargs: P.kwargs) -> None:
            try:
                test(*args, **kwargs)
            except ClaimFailed:
                return
            raise AssertionError(f"{name} is fixed here: remove the mark of this test")

        return expects_failure

    return decorate
