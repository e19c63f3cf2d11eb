"""Fences: guards that live with a resource and refuse a writer that comes with an older token than one they have seen.

A guard that asks the lease service and then writes is check-then-act, and no fence: the writer may stall between the two. These compare and
remember where the write happens, in the same transaction or script. Fencing is for exclusive resources.

Drivers are used by their shape: neither psycopg nor redis-py is imported.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable
from typing import Any, Protocol

from ._errors import LeaseError

#: To run once in Postgres.
POSTGRES_TABLE = "create table if not exists leasehold_fence (resource text primary key, token bigint not null)"

#: First in each transaction that writes, with the resource and the token. No row means stale: roll back.
POSTGRES_FENCE = """insert into leasehold_fence as fence (resource, token) values (%s, %s)
on conflict (resource) do update set token = excluded.token where fence.token <= excluded.token
returning token"""

#: KEYS: the fence, then the key to write. ARGV: the token, then the value. 1, or 0 when stale.
REDIS_SET = """local highest = tonumber(redis.call('GET', KEYS[1]) or '0')
if tonumber(ARGV[1]) < highest then return 0 end
redis.call('SET', KEYS[1], ARGV[1])
redis.call('SET', KEYS[2], ARGV[2])
return 1"""


class Executes(Protocol):
    """A connection or cursor of psycopg, by its shape. Use one connection, inside a transaction."""

    def execute(self, query: Any, params: Any = ..., /) -> Any: ...


class AsyncExecutes(Protocol):
    """A connection or cursor of psycopg's asyncio side."""

    def execute(self, query: Any, params: Any = ..., /) -> Awaitable[Any]: ...


class Evaluates(Protocol):
    """A client of redis-py, by its shape."""

    def eval(self, script: str, numkeys: int, /, *keys_and_args: str) -> Any: ...


class MemoryGuard:
    """For a resource that is gone with this process."""

    def __init__(self) -> None:
        self._highest: dict[str, int] = {}
        self._lock = threading.Lock()

    def admit(self, resource: str, token: int) -> None:
        """Remembers the highest token. Raises ``STALE`` for an older one; the same one again is welcome."""
        must_be_token(resource, token)
        with self._lock:
            highest = self._highest.get(resource)
            if highest is not None and token < highest:
                raise stale(resource, token, highest)
            self._highest[resource] = token


class PostgresGuard:
    """Within the caller's transaction, with psycopg. Locks the row: a writer with another token waits until this one is committed.

    >>> with connection.transaction():
    ...     PostgresGuard(connection).admit("reports", lease.token)
    ...     connection.execute("update reports set …")
    """

    def __init__(self, connection: Executes) -> None:
        self._connection = connection

    def admit(self, resource: str, token: int) -> None:
        """Raises ``STALE`` for an older token than one that was seen: roll back."""
        must_be_token(resource, token)
        if self._connection.execute(POSTGRES_FENCE, (resource, token)).fetchone() is None:
            raise stale(resource, token, None)


class AsyncPostgresGuard:
    """``PostgresGuard`` for psycopg's ``AsyncConnection``."""

    def __init__(self, connection: AsyncExecutes) -> None:
        self._connection = connection

    async def admit(self, resource: str, token: int) -> None:
        """Raises ``STALE`` for an older token than one that was seen: roll back."""
        must_be_token(resource, token)
        cursor = await self._connection.execute(POSTGRES_FENCE, (resource, token))
        if await cursor.fetchone() is None:
            raise stale(resource, token, None)


def set_fenced(client: Evaluates, key: str, value: str, *, token: int, fence: str | None = None) -> None:
    """``SET key value`` in Redis, unless a newer token was seen. In a cluster give both keys the same ``{tag}``.

    >>> set_fenced(redis.Redis(), "report", "42", token=lease.token)
    """
    must_be_token(key, token)
    if int(client.eval(REDIS_SET, 2, fence or f"{key}:fence", key, str(token), value)) != 1:
        raise stale(key, token, None)


async def set_fenced_async(client: Evaluates, key: str, value: str, *, token: int, fence: str | None = None) -> None:
    """``set_fenced`` for a client of ``redis.asyncio``."""
    must_be_token(key, token)
    if int(await client.eval(REDIS_SET, 2, fence or f"{key}:fence", key, str(token), value)) != 1:
        raise stale(key, token, None)


def must_be_token(resource: str, token: int) -> None:
    if isinstance(token, bool) or not isinstance(token, int) or not 0 < token < 2**53:
        raise LeaseError("INVALID", f"{token!r} is no token for {resource}")


def stale(resource: str, token: int, highest: int | None) -> LeaseError:
    seen = "a newer one was seen" if highest is None else f"{highest} was seen"
    text = f"token {token} for {resource} is out of date: {seen}. The lease it came with has ended; acquire anew"
    facts = {"resource": resource, "token": token}
    return LeaseError("STALE", text, facts if highest is None else {**facts, "highest": highest})
