"""What EXPLAIN … WITH (equivalences) says of a query's rows holds of its rows."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

import mzsql

_STAGE = """
CREATE TABLE t1 (f1 int, f2 int);
CREATE TABLE t2 (f1 int, f2 int NOT NULL);
INSERT INTO t1 VALUES (1, 1), (2, NULL), (3, 3), (NULL, 4), (3, 9), (NULL, NULL), (5, 5);
INSERT INTO t2 VALUES (1, 10), (1, 3), (3, 3), (NULL, 5), (7, 7), (3, 9);
"""
_SAID = re.compile(r'equivs: "(.*)" }$', re.MULTILINE)


@pytest.fixture(scope="module")
def con(tmp_path_factory: pytest.TempPathFactory) -> Iterator[mzsql.Connection]:
    with mzsql.connect(str(tmp_path_factory.mktemp("equal"))) as con:
        con.execute(_STAGE)
        yield con


def _classes(con: mzsql.Connection, query: str) -> list[list[str]]:
    """The classes of the plan's first node, as SQL over columns `x0`, `x1`, …"""
    explained = f"EXPLAIN OPTIMIZED PLAN WITH (equivalences, no fast path) FOR {query}"
    ((text,),) = con.execute(explained).fetchall()
    said = _SAID.search(text)
    assert said is not None
    found = re.findall(r"\[([^\[\]]+)\]", said[1])
    return [re.sub(r"#(\d+)", r"x\1", one).split(", ") for one in found]


@pytest.mark.parametrize(
    ("query", "classes"),
    [
        ("SELECT f1 AS x0, f2 AS x1 FROM t1 WHERE f1 = f2", 2),
        ("SELECT f1 AS x0, f2 AS x1 FROM t1 WHERE f1 = f2 AND f2 = 3", 1),
        ("SELECT f1 AS x0, f1 + 1 AS x1 FROM t1 WHERE f1 + 1 > 2", 2),
        (
            "SELECT t1.f1 AS x0, t1.f2 AS x1, t2.f1 AS x2, t2.f2 AS x3 FROM t1, t2 WHERE t1.f1 = t2.f1 AND t1.f2 = t2.f2",
            3,
        ),
        ("SELECT t1.f1 AS x0, t2.f1 AS x1 FROM t1 LEFT JOIN t2 ON t1.f1 = t2.f1", 0),
        ("SELECT f1 AS x0, f1 AS x1 FROM t1 UNION ALL SELECT f2, f2 FROM t2", 1),
        ("SELECT f1 AS x0, 7 AS x1 FROM t1 WHERE f1 IS NOT NULL UNION ALL SELECT f2, 7 FROM t2", 2),
        ("SELECT f1 AS x0, count(*) AS x1, max(f2) AS x2 FROM t1 WHERE f1 > 1 GROUP BY f1", 2),
        ("SELECT f1 AS x0, sum(f2) AS x1 FROM t1 WHERE f1 IS NULL GROUP BY f1", 1),
        ("SELECT f1 AS x0, NULL::int AS x1 FROM t1 WHERE NOT (f1 = 1 OR f2 > 8)", 2),
        ("SELECT DISTINCT ON (f1) f1 AS x0, f2 AS x1 FROM t1 WHERE f2 = 3 OR f2 = 9", 1),
    ],
)
def test_what_is_said_holds_in_every_row(con: mzsql.Connection, query: str, classes: int) -> None:
    said = _classes(con, query)
    assert len(said) == classes
    for first, *others in said:
        for other in others:
            wrong = f"SELECT * FROM ({query}) AS q WHERE ({first}) IS DISTINCT FROM ({other})"
            assert con.execute(wrong).fetchall() == [], (first, other)
