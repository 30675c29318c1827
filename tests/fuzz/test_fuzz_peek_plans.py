"""Queries with indexes in reach: what EXPLAIN says is what runs, index by index, and the answers are those without indexes."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fuzz_engines import Failure, bag
from fuzz_run import query_of, tables_of
from fuzz_schema import Table
from fuzz_steps import in_process

import mzsql
from mzsql.compute.peek.execute import Peeker
from mzsql.compute.peek.index import IndexReads
from mzsql.compute.peek.query import PlannedQuery
from mzsql.dbapi import Connection
from mzsql.repr.ids import GlobalId

PATIENCE = 120.0
_USED = re.compile(r"^  - (?:[\w\"]+\.)*(\w+) \(", re.MULTILINE)


class Read:
    """Which indexes gave rows, and which did not, by their names, and how queries were answered, since `begin`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.given: set[str] = set()
        self.refused: set[str] = set()
        self.taken: list[str] = []
        found = IndexReads._found

        def noted(own: IndexReads, gid: GlobalId, *args: Any) -> object:
            rows = found(own, gid, *args)
            name = own._state().items[gid].name
            (self.refused if rows is None else self.given).add(name)
            return rows

        monkeypatch.setattr(IndexReads, "_found", noted)
        for name in ("rows", "by_index"):
            monkeypatch.setattr(Peeker, name, self._noting(getattr(Peeker, name)))

    def _noting(self, answer: Callable[..., Any]) -> Callable[..., Any]:
        def noted(own: Peeker, query: PlannedQuery, *args: Any, **kwargs: Any) -> Any:
            rows = answer(own, query, *args, **kwargs)
            if rows is not None:
                self.taken.append(query.peek.__struct_config__.tag)
            return rows

        return noted

    def begin(self) -> None:
        self.given, self.refused, self.taken = set(), set(), []


@pytest.fixture
def con() -> Iterator[Connection]:
    with in_process(), mzsql.connect(blob="mem:", consensus="mem:") as opened:
        opened.execute("CREATE CLUSTER bare REPLICAS ()")
        yield opened


def _answer(con: Connection, sql: str, cluster: str) -> object:
    con.execute(f"SET cluster = {cluster}")
    try:
        return bag([tuple(row) for row in con.execute(sql).fetchall()])
    except mzsql.Error as error:
        return Failure(getattr(error, "sqlstate", None) or "", "")
    finally:
        con.execute("SET cluster = quickstart")


def _explained(con: Connection, sql: str) -> str:
    ((text,),) = con.execute(f"EXPLAIN OPTIMIZED PLAN FOR {sql}").fetchall()
    return str(text)


def _used(con: Connection, sql: str) -> set[str]:
    """The indexes that EXPLAIN says a query uses."""
    _, _, told = _explained(con, sql).partition("Used Indexes:\n")
    return set(_USED.findall(told.partition("\n\n")[0]))


def _way(con: Connection, sql: str) -> str:
    """How EXPLAIN says a query is answered."""
    text = _explained(con, sql)
    if not text.startswith("Explained Query (fast path):"):
        return "dataflow"
    if "PeekPersist " in text:
        return "peek_persist"
    return "peek_index" if "Used Indexes:" in text else "constant"


def _await(con: Connection, read: Read, indexes: dict[str, str]) -> None:
    """Until each index answers for what it is on."""
    end = time.monotonic() + PATIENCE
    for index, on in indexes.items():
        while True:
            read.begin()
            con.execute(f"SELECT * FROM {on}").fetchall()
            if index in read.given:
                break
            assert time.monotonic() < end, f"{index} is not read: {read.given} {read.refused}"
            time.sleep(0.05)


def _indexed(con: Connection, read: Read, tables: list[Table], schema: str) -> None:
    con.execute(f"CREATE SCHEMA {schema}")
    con.execute(f"SET search_path = {schema}")
    indexes = {}
    for table in tables:
        for statement in table.statements():
            con.execute(statement)
        if not table.query:
            keys = [c.name for c in table.columns if c.kind in ("integer", "bigint", "text")]
            if keys:
                index = f"{schema}_{table.name}"
                con.execute(f"CREATE INDEX {index} ON {table.name} ({keys[0]})")
                indexes[index] = table.name
    _await(con, read, indexes)


def test_joins_read_the_indexes_that_explain_names(
    con: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Read(monkeypatch)
    con.execute("CREATE TABLE t (k int, s text, x int); CREATE TABLE u (k int, n numeric(9, 2))")
    con.execute("INSERT INTO t SELECT g % 50, 's' || g::text, g FROM generate_series(1, 300) g")
    con.execute("INSERT INTO t VALUES (NULL, NULL, 0), (7, 's', NULL), (7, 's', NULL)")
    con.execute("INSERT INTO u SELECT g % 60, g / 4 FROM generate_series(1, 200) g")
    con.execute("CREATE INDEX t_k ON t (k); CREATE INDEX u_k ON u (k)")
    con.execute("CREATE INDEX t_xk ON t (x % 3, k)")
    _await(con, read, {"t_k": "t", "u_k": "u"})
    seen: set[str] = set()
    for query in (
        "SELECT t.s, u.n FROM t JOIN u ON t.k = u.k",
        "SELECT t.s, u.n FROM t JOIN u ON t.k = u.k WHERE u.n > 20 AND t.k = 7",
        "SELECT count(*), sum(n) FROM t JOIN u USING (k) WHERE t.k IN (3, 7)",
        "SELECT * FROM t LEFT JOIN u ON t.k = u.k",
        "SELECT k, sum(x) FROM t GROUP BY k",
        "SELECT * FROM t WHERE k = 7 UNION ALL SELECT k, '', 1 FROM u WHERE k = 9",
        "SELECT * FROM t a, t b WHERE a.x % 3 = b.x % 3 AND a.k = b.k",
        "SELECT s, now() > '2000-01-01' FROM t JOIN u USING (k) WHERE k = 7",
        "SELECT * FROM t WHERE k = (SELECT min(k) FROM u WHERE n > 3)",
        "SELECT 1 / (k - 7) FROM t JOIN u USING (k)",
    ):
        read.begin()
        found = _answer(con, query, "quickstart")
        given, taken = read.given, list(read.taken)
        assert given == _used(con, query), query
        assert taken == [_way(con, query)], query
        assert not read.refused, query
        assert found == _answer(con, query, "bare"), query
        seen |= given
    assert seen == {"t_k", "u_k", "t_xk"}
    # What was committed a moment ago is in every answer, whether an index has it by then or not.
    for n in range(5):
        con.execute(f"INSERT INTO t VALUES (7, 'new', {1000 + n})")
        query = "SELECT count(DISTINCT t.x) FROM t JOIN u ON t.k = u.k WHERE t.s = 'new'"
        assert con.execute(query).fetchall() == [(n + 1,)]
    # With errors in it an index cannot say which of them a query meets.
    con.execute("CREATE VIEW shares AS SELECT k, 10 / x AS share FROM t")
    con.execute("CREATE INDEX shares_k ON shares (k)")
    query = "SELECT share FROM shares JOIN u USING (k) WHERE k = 7"
    assert _answer(con, query, "quickstart") == _answer(con, query, "bare")


def test_every_way_of_answering_is_the_one_that_explain_tells(
    con: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Read(monkeypatch)
    con.execute("CREATE TABLE t (k int, s text); CREATE TABLE u (k int)")
    con.execute("INSERT INTO t SELECT g % 50, 's' || g::text FROM generate_series(1, 300) g")
    con.execute("CREATE INDEX t_k ON t (k)")
    _await(con, read, {"t_k": "t"})
    ways = {}
    for query in (
        "SELECT 1",
        "VALUES (2, 'b'), (1, 'a') ORDER BY 1 LIMIT 1",
        "SELECT upper('a') || g FROM generate_series(1, 3) g WHERE g > 1",
        "SELECT * FROM t WHERE k = 7",
        "SELECT s || '!' FROM t ORDER BY s LIMIT 3",
        "SELECT count(*) FROM t WHERE k = 7",
        "SELECT * FROM u LIMIT 1",
        "SELECT k + 1 FROM u LIMIT 1",
        "SELECT * FROM u",
        "SELECT k FROM u WHERE k > 3 LIMIT 1",
        "SELECT k FROM u ORDER BY k LIMIT 1",
        "SELECT * FROM u WHERE k = 3 AND k = 4",
        "SELECT 1, 'a' UNION ALL SELECT 2, upper('b')",
        "SELECT * FROM (SELECT * FROM u ORDER BY k LIMIT 5) LIMIT 3",
    ):
        read.begin()
        con.execute(query).fetchall()
        assert read.taken == [_way(con, query)], query
        ways[query] = read.taken[0]
    assert set(ways.values()) == {"constant", "peek_index", "peek_persist", "dataflow"}, ways


def _random_queries(con: Connection, read: Read, seeds: range, each: int) -> int:
    """How many of the queries have read an index."""
    seen = 0
    for number, seed in enumerate(seeds):
        tables = tables_of(seed)
        _indexed(con, read, tables, f"f{number}")
        for one in range(seed, seed + each):
            query = str(query_of(one, tables))
            read.begin()
            found = _answer(con, query, "quickstart")
            given, refused, taken = read.given, read.refused, list(read.taken)
            assert found == _answer(con, query, "bare"), query
            if not refused and not isinstance(found, Failure):
                assert given == _used(con, query), query
                assert taken == [_way(con, query)], query
            seen += bool(given)
    return seen


def test_random_queries_read_what_explain_names_and_answer_alike(
    con: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _random_queries(con, Read(monkeypatch), range(0, 80, 40), each=10) >= 5


@pytest.mark.long
def test_many_random_queries_read_what_explain_names_and_answer_alike(
    con: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _random_queries(con, Read(monkeypatch), range(400, 560, 40), each=25) >= 25
