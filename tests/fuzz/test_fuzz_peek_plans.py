"""Queries with indexes in reach: what EXPLAIN says is what runs, index by index, and the answers are those without indexes."""

from __future__ import annotations

import contextlib
import random
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
from mzsql.adapter.peek import explaining
from mzsql.compute.peek.execute import Peeker
from mzsql.compute.peek.index import IndexReads
from mzsql.compute.peek.query import PlannedQuery
from mzsql.dbapi import Connection
from mzsql.repr.ids import GlobalId
from mzsql.transform import fast_path
from mzsql.transform.fast_path import DataflowPlan

PATIENCE = 120.0
_USED = re.compile(r"^  - (?:[\w\"]+\.)*(\w+) \(", re.MULTILINE)


class Read:
    """Which indexes gave rows, and which did not, by their names, and how queries were answered, since `begin`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.given: set[str] = set()
        self.refused: set[str] = set()
        self.taken: list[str] = []
        self.plans: list[PlannedQuery] = []
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
            self.plans.append(query)
            rows = answer(own, query, *args, **kwargs)
            if rows is not None:
                self.taken.append(query.peek.__struct_config__.tag)
            return rows

        return noted

    def begin(self) -> None:
        self.given, self.refused, self.taken, self.plans = set(), set(), [], []


class Printed:
    """What the printers of EXPLAIN were given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.last: object = None
        for name in ("explain_fast_path", "explain_mir", "explain_lir"):
            monkeypatch.setattr(explaining, name, self._noting(getattr(explaining, name)))

    def _noting(self, print_it: Callable[..., str]) -> Callable[..., str]:
        def noted(plan: object, *args: Any, **kwargs: Any) -> str:
            self.last = plan
            return print_it(plan, *args, **kwargs)

        return noted


def _told(con: Connection, printed: Printed, sql: str) -> list[object]:
    """What EXPLAIN prints of a query at its last two stages; empty where it cannot be planned."""
    found: list[object] = []
    for stage in ("OPTIMIZED", "PHYSICAL"):
        try:
            con.execute(f"EXPLAIN {stage} PLAN FOR {sql}")
        except mzsql.Error:
            return []
        found.append(printed.last)
    return found


def _check_same(con: Connection, read: Read, printed: Printed, sql: str) -> int:
    """EXPLAIN prints the very plan that execution takes; how many plans there were to compare."""
    before = _told(con, printed, sql)
    read.begin()
    with contextlib.suppress(mzsql.Error):
        con.execute(sql).fetchall()
    taken = list(read.plans)
    after = _told(con, printed, sql)
    if not taken or not before:
        return 0
    # Where an index is behind, what it is on is read by a second plan.
    query, peek = taken[0], taken[0].peek
    mine: list[object] = [peek, peek]
    if isinstance(peek, DataflowPlan):
        mine = [peek.mir, query.plan]
    for told in (before, after):
        if query.at_sight:
            assert told == mine, sql
        else:
            assert all(a is b for a, b in zip(told, mine, strict=True)), sql
    return 1


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


def _compare(con: Connection, monkeypatch: pytest.MonkeyPatch, seeds: range, each: int) -> int:
    """How many plans were compared, while indexes came and went."""
    read, printed = Read(monkeypatch), Printed(monkeypatch)
    compared = 0
    for number, seed in enumerate(seeds):
        tables = tables_of(seed)
        _indexed(con, read, tables, f"f{number}")
        indexed = [one.name for one in tables if not one.query]
        for one in range(seed, seed + each):
            query = str(query_of(one, tables))
            compared += _check_same(con, read, printed, query)
            name = indexed[one % len(indexed)]
            con.execute(f"DROP INDEX IF EXISTS f{number}_{name}")
            compared += _check_same(con, read, printed, query)
            assert not read.given & {f"f{number}_{name}"}, query
            con.execute(
                f"CREATE DEFAULT INDEX ON {name}; CREATE INDEX f{number}_{name} ON {name} (1)"
            )
            compared += _check_same(con, read, printed, query)
    return compared


def test_explain_prints_the_plan_that_execution_takes(
    con: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _compare(con, monkeypatch, range(0, 80, 40), each=4) >= 16


@pytest.mark.soak
def test_explain_prints_the_plan_that_execution_takes_of_many_queries(
    con: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _compare(con, monkeypatch, range(800, 1200, 40), each=20) >= 400


def test_explain_prints_the_plan_that_execution_takes_in_the_session(
    con: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, printed = Read(monkeypatch), Printed(monkeypatch)
    con.execute("CREATE TABLE t (k int, s text); CREATE INDEX t_k ON t (k)")
    con.execute("CREATE VIEW mine AS SELECT * FROM t WHERE s = current_user")
    for query in (
        "SELECT * FROM mine WHERE k > 3",
        "SELECT current_user, current_database()",
        "SELECT k FROM t WHERE s <> current_schema",
        "SELECT name FROM mz_tables WHERE name <> current_user",
    ):
        assert _check_same(con, read, printed, query)
    con.execute("ALTER CLUSTER quickstart SET (REPLICATION FACTOR 2)")
    for replica in ("r1", "r2"):
        con.execute(f"SET cluster_replica = {replica}")
        assert _check_same(con, read, printed, "SELECT count(*) FROM t WHERE s > 'a'")
        assert _used(con, "SELECT * FROM t WHERE k = 3") == ({"t_k"} if replica == "r1" else set())


_LITERALS = {
    "integer": ("0", "7", "-3"),
    "text": ("'a'", "'x'", "''"),
    "boolean": ("true", "false"),
}


def _row_wise(rng: random.Random, columns: list[tuple[str, str]]) -> str:
    """Row-wise work over one table, of which much is plain."""

    def literal(kind: str) -> str:
        return rng.choice(_LITERALS[kind])

    def output() -> str:
        name, kind = rng.choice(columns)
        if rng.random() < 0.8:
            return name
        more = {"integer": f"{name} + 1", "text": f"{name} || 'z'", "boolean": f"NOT {name}"}
        return rng.choice([literal(kind), more[kind], f"coalesce({name}, {name})"])

    def condition() -> str:
        name, kind = rng.choice(columns)
        if rng.random() < 0.1:
            return f"{name} IN ({literal(kind)}, {literal(kind)})"
        if rng.random() < 0.15:
            return rng.choice(
                [f"{name} IS NOT NULL", f"{name} IS NULL", f"{name} <> {literal(kind)}"]
            )
        sides = [name, rng.choice(["=", "=", "<", ">="]), literal(kind)]
        return " ".join(sides if rng.random() < 0.7 else [literal(kind), sides[1], name])

    text = (
        f"SELECT {', '.join(output() for _ in range(rng.randint(1, 3)))} FROM {rng.choice('tuw')}"
    )
    if rng.random() < 0.8:
        text += f" WHERE {' AND '.join(condition() for _ in range(rng.choice([1, 1, 2, 3])))}"
    return text + rng.choice(["", "", " LIMIT 3", " ORDER BY 1 LIMIT 2"])


def test_what_is_planned_at_sight_is_planned_as_the_optimizer_would(
    con: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "tuw":
        con.execute(f"CREATE TABLE {name} (a integer NOT NULL, b text, c boolean, d integer)")
    con.execute(
        "CREATE INDEX t_a ON t (a); CREATE INDEX u_ba ON u (b, a); CREATE INDEX u_d ON u (d % 3)"
    )
    columns = [("a", "integer"), ("b", "text"), ("c", "boolean"), ("d", "integer")]
    seen, plan_at_sight = 0, fast_path._at_sight

    def told(query: str) -> list[object]:
        con._shared.coordinator._queries.plans._kept.clear()
        texts = [
            f"EXPLAIN {one} FOR {query}" for one in ("OPTIMIZED PLAN", "PHYSICAL PLAN AS JSON")
        ]
        return [con.execute(text).fetchall() for text in texts]

    def noted(*args: Any) -> Any:
        nonlocal seen
        found = plan_at_sight(*args)
        seen += found is not None
        return found

    for seed in range(120):
        query = _row_wise(random.Random(f"row-wise {seed}"), columns)
        monkeypatch.setattr(fast_path, "_at_sight", noted)
        found = told(query)
        monkeypatch.setattr(fast_path, "_at_sight", lambda *_: None)
        assert found == told(query), query
    assert seen >= 40
