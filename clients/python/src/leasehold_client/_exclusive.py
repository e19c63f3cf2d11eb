"""What ``exclusive`` can decorate. A lease around a call excludes nothing if the work happens after the call."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any

from ._errors import LeaseError


def runs_as_coroutine(function: Callable[..., Any], advice: str = "") -> bool:
    """Whether the work is awaited. Raises ``INVALID`` for what cannot run under a lease. ``advice``: what to do, if only coroutines can."""
    if isinstance(function, (staticmethod, classmethod)):
        raise _refused(function, "put it below @staticmethod or @classmethod")
    if inspect.isclass(function):
        raise _refused(function, "the lease would be over when the object is made. Decorate its methods")
    if not callable(function):
        raise _refused(function, "it cannot be called. Below @property, decorate the function")
    for called in (function, getattr(function, "__call__", None)):  # noqa: B004  an object whose call is a coroutine function
        if inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called):
            raise _refused(function, "a generator runs after the call, when the lease is over. Use request() inside it")
    awaited = any(inspect.iscoroutinefunction(called) for called in (function, getattr(function, "__call__", None)))  # noqa: B004
    if advice and not awaited:
        raise _refused(function, advice)
    return awaited


def check_done(function: Callable[..., Any], result: object) -> None:
    """A function that only returns what would do the work, such as a lambda around a coroutine, is known by its result."""
    if isinstance(result, (CoroutineType, GeneratorType, AsyncGeneratorType)):
        if isinstance(result, CoroutineType):
            result.close()
        raise _refused(function, f"it returned a {type(result).__name__}, which runs when the lease is over. Decorate what makes it")


def _refused(function: object, why: str) -> LeaseError:
    name = getattr(function, "__qualname__", None) or repr(function)
    return LeaseError("INVALID", f"exclusive cannot hold a lease for {name}: {why}")
