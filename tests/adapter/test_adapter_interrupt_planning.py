"""Planning, and writing SQL, end with their statement; what ended half-way leaves nothing behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from sqlglot import expressions as exp

import mzsql
from mzsql.dbapi import Connection
from mzsql.expr import relation as mir
from mzsql.expr.engines import to_sql
from mzsql.expr.functions.table import Engine
from mzsql.frontend import parse_statements
from mzsql.repr.errors import QueryCanceled
from mzsql.repr.ids import GlobalId
from mzsql.repr.interrupt import Interrupt, running
from mzsql.repr.types import INTEGER, ColumnType, RelationType
from mzsql.transform import OptimizerContext, optimize_local

_ROWS = RelationType((ColumnType(INTEGER),))
_PLAN = mir.Project(mir.Get(GlobalId("u1"), _ROWS), (0, 0))


@pytest.fixture(scope="module")
def con(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    with mzsql.connect(str(tmp_path_factory.mktemp("planning"))) as made:
        made.execute("CREATE TABLE t (a int, b int)")
        yield made


@pytest.mark.parametrize(
    "stage",
    [
        pytest.param(lambda: parse_statements("SELECT a FROM t WHERE a = 1"), id="parsing"),
        pytest.param(lambda: optimize_local(_PLAN, OptimizerContext()), id="optimizing"),
        pytest.param(
            lambda: to_sql(exp.column("a", table="t"), Engine.SPARK), id="writing for Spark"
        ),
        pytest.param(
            lambda: to_sql(exp.column("a", table="t"), Engine.DUCKDB), id="writing for DuckDB"
        ),
    ],
)
def test_every_stage_ends_with_its_statement(stage: Callable[[], object]) -> None:
    stage()
    with running(Interrupt(0.0)), pytest.raises(QueryCanceled, match="statement timeout"):
        stage()


#: Takes seconds to plan and to render.
_LONG = "SELECT count(*) FROM t t0" + "".join(
    f" LEFT JOIN t t{i} ON t{i}.a = t{i - 1}.b" for i in range(1, 120)
)


@pytest.mark.parametrize(
    "what", ["", "EXPLAIN PHYSICAL PLAN AS TEXT FOR ", "EXPLAIN PHYSICAL PLAN AS SQL FOR "]
)
def test_a_timeout_ends_planning(con: Connection, what: str) -> None:
    con.execute("SET statement_timeout = '200 ms'")
    with pytest.raises(mzsql.OperationalError, match="statement timeout") as raised:
        con.execute(what + _LONG)
    assert raised.value.sqlstate == "57014"
    con.execute("RESET statement_timeout")
    assert con.execute("SELECT count(*) FROM t").fetchall() == [(0,)]
