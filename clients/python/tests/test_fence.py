"""Guards in databases. Postgres is a stand-in with psycopg's shape: docs/recipes/fence.md says what was tried with psycopg itself."""

from __future__ import annotations

import asyncio
import pathlib
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace, TracebackType
from typing import Any

import pytest

from leasehold_client import LeaseError, fence
from leasehold_client.testing import World

IDLE, INTRANS, INERROR = 0, 2, 3


class Connection:
    """psycopg, as far as the guards use it. Rows are those of the fence only."""

    def __init__(self, table: bool = True) -> None:
        self.tokens: dict[str, int] = {}
        self.table = table
        self.ran: list[str] = []
        self.info = SimpleNamespace(transaction_status=IDLE)

    def execute(self, query: Any, params: Any = None) -> Connection:
        self.ran.append(query)
        self.row: Any = (1,)
        if query == "fails":
            self.info.transaction_status = INERROR
            raise ValueError(query)
        if "to_regclass" in query:
            self.row = (1,) if self.table else None
        if query == fence.POSTGRES_TABLE:
            self.table = True
        if query == fence.POSTGRES_FENCE:
            assert self.table
            resource, token = params
            self.row = (token,) if token >= self.tokens.get(resource, 0) else None
            if self.row:
                self.tokens[resource] = token
        return self

    def fetchone(self) -> Any:
        return self.row

    @contextmanager
    def transaction(self) -> Iterator[None]:
        assert self.info.transaction_status == IDLE
        self.info.transaction_status, before = INTRANS, dict(self.tokens)
        try:
            yield
            self.ran.append("commit")
        except BaseException:
            self.ran.append("rollback")
            self.tokens = before
            raise
        finally:
            self.info.transaction_status = IDLE


class Pool:
    def __init__(self) -> None:
        self.made: list[Connection] = []
        self.out = 0

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        self.made.append(Connection())
        self.out += 1
        try:
            yield self.made[-1]
        finally:
            self.out -= 1


class AsyncConnection:
    """As ``Connection``, for asyncio."""

    def __init__(self) -> None:
        self.inner = Connection()
        self.info = self.inner.info

    async def execute(self, query: Any, params: Any = None) -> AsyncConnection:
        await asyncio.sleep(0)
        self.inner.execute(query, params)
        return self

    async def fetchone(self) -> Any:
        return self.inner.fetchone()

    def transaction(self) -> AsyncBlock:
        return AsyncBlock(self.inner.transaction())


class AsyncBlock:
    def __init__(self, block: Any, value: Any = None) -> None:
        self._block = block
        self._value = value

    async def __aenter__(self) -> Any:
        await asyncio.sleep(0)
        self._block.__enter__()
        return self._value

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._block.__exit__(kind, error, trace)


def code_of(guard: Any, lease: Any, statement: str = "update") -> str:
    try:
        with guard.write(lease) as connection:
            connection.execute(statement)
    except LeaseError as error:
        return error.code
    return "written"


def test_a_write_on_a_pool_is_one_transaction_on_one_connection(world: World) -> None:
    pool = Pool()
    with world.connect().request(["b", "a"]) as lease, fence.PostgresGuard(pool).write(lease) as connection:
        assert pool.out == 1
        connection.execute("update")
    [only] = pool.made
    assert only.ran == [fence.POSTGRES_FENCE, fence.POSTGRES_FENCE, "update", "commit"] and pool.out == 0
    assert list(only.tokens) == ["a", "b"]  # in one order, whoever writes
    fence.PostgresGuard(pool).admit("a", 1)
    assert pool.made[1].ran == [fence.POSTGRES_FENCE, "commit"]


def test_a_late_holder_is_refused_before_its_block_begins() -> None:
    connection = Connection()
    guard = fence.PostgresGuard(connection)
    assert [code_of(guard, {"a": token}) for token in (5, 5, 9, 8)] == ["written", "written", "written", "STALE"]
    assert connection.ran[-2:] == [fence.POSTGRES_FENCE, "rollback"]
    with pytest.raises(LeaseError, match="STALE"):
        guard.admit("a", 8)


def test_a_write_inside_a_transaction_and_one_in_which_a_statement_failed_are_refused() -> None:
    connection = Connection()
    guard = fence.PostgresGuard(connection)
    with connection.transaction():
        assert code_of(guard, {"a": 1}) == "INVALID"  # it would be a savepoint, and not be committed
        guard.admit("a", 1)
    with (
        pytest.raises(LeaseError, match="nothing was written"),
        guard.write({"b": 1}) as within,
        pytest.raises(ValueError, match="fails"),
    ):
        within.execute("fails")
    assert connection.tokens == {"a": 1}


def test_the_table_is_created_where_there_is_none() -> None:
    connection = Connection(table=False)
    guard = fence.PostgresGuard(connection, create=True)
    assert [code_of(guard, {"a": token}) for token in (1, 2)] == ["written"] * 2
    assert connection.ran.count(fence.POSTGRES_TABLE) == 1


@pytest.mark.parametrize("lease", [{}, "reports", 7, {"a": 0}, {"a": True}, SimpleNamespace(tokens={})])
def test_a_write_without_a_token_is_refused(lease: Any) -> None:
    guards: list[Any] = [fence.PostgresGuard(Connection()), fence.SqliteGuard(sqlite3.connect(":memory:"), create=True)]
    assert [code_of(guard, lease) for guard in guards] == ["INVALID"] * 2
    with pytest.raises(LeaseError, match="a connection or a pool"):
        fence.PostgresGuard(lease)


def test_writes_for_asyncio() -> None:
    async def main() -> None:
        connection = AsyncConnection()
        guard = fence.AsyncPostgresGuard(connection)

        async def write(lease: Mapping[str, int]) -> str:
            try:
                async with guard.write(lease) as within:
                    await within.execute("update")
            except LeaseError as error:
                return error.code
            return "written"

        assert [await write({"a": token}) for token in (5, 4)] == ["written", "STALE"]
        # One connection cannot be in two transactions at once.
        assert list(await asyncio.gather(write({"a": 6}), write({"a": 7}))) == ["written", "INVALID"]
        pool = SimpleNamespace(connection=lambda: AsyncBlock(Pool().connection(), AsyncConnection()))
        await fence.AsyncPostgresGuard(pool).admit("a", 1)
        await guard.admit("a", 8)
        with pytest.raises(LeaseError, match="STALE"):
            await guard.admit("a", 7)

    asyncio.run(main())


@pytest.fixture
def database(tmp_path: pathlib.Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(tmp_path / "reports.db", timeout=0)
    connection.execute("create table report (name text primary key)")
    yield connection
    connection.close()


def test_sqlite_commits_the_fence_with_the_write(database: sqlite3.Connection, tmp_path: pathlib.Path) -> None:
    other = sqlite3.connect(tmp_path / "reports.db", timeout=0)
    guard, rival = fence.SqliteGuard(database, create=True), fence.SqliteGuard(other, create=True)
    assert code_of(guard, {"a": 5}, "insert into report values ('first')") == "written"
    with guard.write({"a": 6}), pytest.raises(sqlite3.OperationalError, match="locked"):
        code_of(rival, {"a": 7})
    with pytest.raises(ValueError, match="broken"), guard.write({"a": 9}) as connection:
        connection.execute("insert into report values ('undone')")
        raise ValueError("broken")
    assert code_of(rival, {"a": 7}, "insert into report values ('second')") == "written"
    assert code_of(guard, {"a": 6}, "insert into report values ('late')") == "STALE"
    assert database.execute("select name from report").fetchall() == [("first",), ("second",)]
    other.close()


def test_sqlite_fences_in_a_transaction_of_the_application(database: sqlite3.Connection) -> None:
    guard = fence.SqliteGuard(database, create=True)
    with database:
        database.execute("insert into report values ('x')")  # begins a transaction
        assert code_of(guard, {"a": 1}) == "INVALID"
        guard.admit("a", 5)
    with pytest.raises(LeaseError, match="STALE"), database:
        database.execute("insert into report values ('late')")
        guard.admit("a", 4)
    assert database.execute("select name from report").fetchall() == [("x",)]
    with pytest.raises(LeaseError, match="leave commit"), guard.write({"a": 6}) as connection:
        connection.commit()


def test_rows_of_the_fence_are_deleted_by_the_time_of_their_last_write(database: sqlite3.Connection) -> None:
    guard = fence.SqliteGuard(database, create=True)
    for name in ("old", "used"):
        assert code_of(guard, {name: 1}, "select 1") == "written"
    with database:
        database.execute("update leasehold_fence set updated = datetime('now', '-31 days')")
    assert code_of(guard, {"used": 1}, "select 1") == "written"
    with database:
        database.execute("delete from leasehold_fence where updated < datetime('now', '-30 days')")
    assert database.execute("select resource from leasehold_fence").fetchall() == [("used",)]
