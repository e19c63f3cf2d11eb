"""Fences: guards that live with a resource and refuse a writer that comes with an older token than one they have seen.

A guard that asks the lease service and then writes is check-then-act, and no fence: the writer may stall between the two. These compare and
remember where the write happens, in the same transaction or script. Fencing is for exclusive resources.

Drivers are used by their shape: neither psycopg nor redis-py nor sqlite3 is imported.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager, suppress
from typing import Any, Protocol

from ._errors import LeaseError

#: To run once in Postgres, or use ``create=True``. ``updated`` is for deleting rows that are not needed any more.
POSTGRES_TABLE = (
    "create table if not exists leasehold_fence"
    " (resource text primary key, token bigint not null, updated timestamptz not null default now())"
)

#: First in each transaction that writes, with the resource and the token. No row means stale: roll back.
POSTGRES_FENCE = """insert into leasehold_fence as fence (resource, token) values (%s, %s)
on conflict (resource) do update set token = excluded.token, updated = excluded.updated where fence.token <= excluded.token
returning token"""

_EXISTS = "select 1 where to_regclass('leasehold_fence') is not null"
# Two processes that create the same table at once would fail: one of them waits here.
_CREATE_LOCK = "select pg_advisory_xact_lock(7420, 1)"

#: To run once in SQLite, or use ``create=True``.
SQLITE_TABLE = (
    "create table if not exists leasehold_fence"
    " (resource text primary key, token integer not null, updated text not null default current_timestamp)"
)

#: First in each transaction that writes, with the resource and the token. No row means stale: roll back.
SQLITE_FENCE = """insert into leasehold_fence (resource, token) values (?, ?)
on conflict (resource) do update set token = excluded.token, updated = excluded.updated where leasehold_fence.token <= excluded.token
returning token"""

#: KEYS: the fence, then the key to write. ARGV: the token, then the value. 1, or 0 when stale.
REDIS_SET = """local highest = tonumber(redis.call('GET', KEYS[1]) or '0')
if tonumber(ARGV[1]) < highest then return 0 end
redis.call('SET', KEYS[1], ARGV[1])
redis.call('SET', KEYS[2], ARGV[2])
return 1"""


class Executes(Protocol):
    """A connection or cursor of psycopg, or what runs a statement in a transaction of SQLAlchemy and others, by its shape."""

    def execute(self, query: Any, params: Any = ..., /) -> Any: ...


class AsyncExecutes(Protocol):
    """A connection or cursor of psycopg's asyncio side."""

    def execute(self, query: Any, params: Any = ..., /) -> Awaitable[Any]: ...


class Pools(Protocol):
    """A ``ConnectionPool`` or ``AsyncConnectionPool`` of psycopg_pool."""

    def connection(self) -> Any: ...


class Fenced(Protocol):
    """A lease: the token of each resource that is written to."""

    @property
    def tokens(self) -> Mapping[str, int]: ...


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
    """For writes to Postgres, with psycopg. Locks a row for each resource: a writer with another token waits until this one is committed.

    Takes a pool, of which it checks out one connection for each write, or one connection.

    >>> guard = PostgresGuard(pool, create=True)
    >>> with guard.write(lease) as connection:
    ...     connection.execute("update reports set …")
    """

    def __init__(self, place: Executes | Pools, *, create: bool = False) -> None:
        self._place: Any = _checked_place(place)
        self._create = create
        self._lock = threading.Lock()

    def admit(self, resource: str, token: int) -> None:
        """Runs the fence in the transaction that the connection is in: you have begun it, write in it, and commit it.

        Raises ``STALE`` for an older token than one that was seen: roll back. With a pool it is a transaction of its own, and no fence for
        what is written elsewhere.
        """
        must_be_token(resource, token)
        if _is_pool(self._place):
            with self.write({resource: token}):
                return
        self._fence(self._place, resource, token)

    @contextmanager
    def write(self, lease: Fenced | Mapping[str, int]) -> Iterator[Any]:
        """The fence and the block are one transaction on one connection: both happen or neither. Use no other connection in it.

        Raises ``STALE`` before the block begins if a newer token was seen. Instead of the lease, its ``tokens`` will do.
        """
        tokens = tokens_of(lease)
        with ExitStack() as stack:
            connection = stack.enter_context(self._place.connection()) if _is_pool(self._place) else self._place
            with self._lock:
                _must_be_idle(connection)
                stack.enter_context(connection.transaction())
            for resource, token in tokens:
                self._fence(connection, resource, token)
            yield connection
            _must_not_have_failed(connection)

    def _fence(self, connection: Any, resource: str, token: int) -> None:
        if self._create and connection.execute(_EXISTS).fetchone() is None:
            connection.execute(_CREATE_LOCK)
            connection.execute(POSTGRES_TABLE)
        if connection.execute(POSTGRES_FENCE, (resource, token)).fetchone() is None:
            raise stale(resource, token, None)


class AsyncPostgresGuard:
    """``PostgresGuard`` for psycopg's ``AsyncConnection`` and ``AsyncConnectionPool``.

    >>> async with AsyncPostgresGuard(pool).write(lease) as connection:
    ...     await connection.execute("update reports set …")
    """

    def __init__(self, place: AsyncExecutes | Pools, *, create: bool = False) -> None:
        self._place: Any = _checked_place(place)
        self._create = create
        self._begun: set[int] = set()

    async def admit(self, resource: str, token: int) -> None:
        """As ``PostgresGuard.admit``."""
        must_be_token(resource, token)
        if _is_pool(self._place):
            async with self.write({resource: token}):
                return
        await self._fence(self._place, resource, token)

    @asynccontextmanager
    async def write(self, lease: Fenced | Mapping[str, int]) -> AsyncIterator[Any]:
        """As ``PostgresGuard.write``."""
        tokens = tokens_of(lease)
        async with AsyncExitStack() as stack:
            connection = await stack.enter_async_context(self._place.connection()) if _is_pool(self._place) else self._place
            _must_be_idle(connection, id(connection) in self._begun)
            self._begun.add(id(connection))
            stack.callback(self._begun.discard, id(connection))
            await stack.enter_async_context(connection.transaction())
            for resource, token in tokens:
                await self._fence(connection, resource, token)
            yield connection
            _must_not_have_failed(connection)

    async def _fence(self, connection: Any, resource: str, token: int) -> None:
        if self._create and await (await connection.execute(_EXISTS)).fetchone() is None:
            await connection.execute(_CREATE_LOCK)
            await connection.execute(POSTGRES_TABLE)
        cursor = await connection.execute(POSTGRES_FENCE, (resource, token))
        if await cursor.fetchone() is None:
            raise stale(resource, token, None)


class SqliteGuard:
    """For writes to a SQLite database, with ``sqlite3``.

    >>> guard = SqliteGuard(sqlite3.connect("reports.db"), create=True)
    >>> with guard.write(lease) as connection:
    ...     connection.execute("update reports set …")
    """

    def __init__(self, connection: Executes, *, create: bool = False) -> None:
        self._connection: Any = connection
        self._create = create

    def admit(self, resource: str, token: int) -> None:
        """Runs the fence in the transaction that the connection is in: you write in it, and commit it. Raises ``STALE``: roll back."""
        must_be_token(resource, token)
        if self._create:
            self._connection.execute(SQLITE_TABLE)
        # All rows are fetched: a statement that is not at its end would keep the transaction from being committed.
        if not self._connection.execute(SQLITE_FENCE, (resource, token)).fetchall():
            raise stale(resource, token, None)

    @contextmanager
    def write(self, lease: Fenced | Mapping[str, int]) -> Iterator[Any]:
        """The fence and the block are one transaction: both happen or neither. Raises ``STALE`` before the block begins."""
        tokens = tokens_of(lease)
        connection = self._connection
        if connection.in_transaction:
            raise _inside_transaction()
        connection.execute("begin immediate")
        try:
            for resource, token in tokens:
                self.admit(resource, token)
            yield connection
            if not connection.in_transaction:
                raise LeaseError("INVALID", "the block ended the transaction of the write: leave commit and rollback to the guard")
            connection.execute("commit")
        except BaseException:
            with suppress(Exception):  # what went wrong matters more than that it was rolled back already
                connection.execute("rollback")
            raise


def tokens_of(lease: Fenced | Mapping[str, int]) -> list[tuple[str, int]]:
    """Sorted: two writers that lock several rows must lock them in the same order."""
    tokens = lease if isinstance(lease, Mapping) else getattr(lease, "tokens", None)
    if not isinstance(tokens, Mapping):
        raise LeaseError("INVALID", f"write takes a lease, or its tokens by resource, not {type(lease).__name__}")
    if not tokens:
        raise LeaseError("INVALID", "the lease has no resource, and no token to compare: acquire what is written")
    for resource, token in tokens.items():
        must_be_token(resource, token)
    return sorted(tokens.items())


def _is_pool(place: Any) -> bool:
    return not hasattr(place, "execute")


def _checked_place(place: Any) -> Any:
    if not hasattr(place, "execute") and not callable(getattr(place, "connection", None)):
        raise LeaseError("INVALID", f"the guard takes a connection or a pool of psycopg, not {type(place).__name__}")
    return place


def _must_be_idle(connection: Any, begun: bool = False) -> None:
    if not hasattr(connection, "transaction"):
        raise LeaseError(
            "INVALID", "write needs a connection of psycopg, whose transaction() it uses: in a transaction of your own use admit"
        )
    # A transaction in a transaction is a savepoint: nothing of it would be committed here.
    if begun or _status(connection) not in (None, 0):
        raise _inside_transaction()


def _must_not_have_failed(connection: Any) -> None:
    # The commit of a transaction in which a statement failed is a rollback, and no error.
    if _status(connection) == 3:
        raise LeaseError("INVALID", "nothing was written: a statement of the block failed, and the block did not raise its error")


def _status(connection: Any) -> int | None:
    return getattr(getattr(connection, "info", None), "transaction_status", None)


def _inside_transaction() -> LeaseError:
    text = "this connection is inside a transaction, which its first statement begins unless autocommit is set"
    return LeaseError("INVALID", f"{text}: commit it before, give the guard a pool, or call admit in it, write, and commit it yourself")


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
