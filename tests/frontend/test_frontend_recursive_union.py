"""What WITH RECURSIVE refuses, and how it says so; what it answers is held by the records of queries."""

from __future__ import annotations

import pytest
from memory_catalog import MemoryCatalog

from mzsql.repr.errors import SqlError

_SAID = 'recursive reference to query "r" must not appear'
_TERM = "in a recursive query's recursive term is not supported"
# the query r (n), message, SQLSTATE
CASES = [
    (
        "SELECT n FROM r",
        'recursive query "r" does not have the form non-recursive-term UNION [ALL] recursive-term',
        "42P19",
    ),
    ("SELECT n FROM r UNION SELECT 1", f"{_SAID} within its non-recursive term", "42P19"),
    ("SELECT 1 UNION SELECT x.n FROM r x, r y", f"{_SAID} more than once", "42P19"),
    ("SELECT 1 UNION SELECT 2 WHERE EXISTS (SELECT FROM r)", f"{_SAID} within a subquery", "42P19"),
    ("SELECT 1 UNION SELECT (SELECT n FROM r)", f"{_SAID} within a subquery", "42P19"),
    (
        "SELECT 1 UNION SELECT 2 FROM t LEFT JOIN r ON true",
        f"{_SAID} within an outer join",
        "42P19",
    ),
    (
        "SELECT 1 UNION SELECT 2 FROM r FULL JOIN t ON true",
        f"{_SAID} within an outer join",
        "42P19",
    ),
    (
        "SELECT 1 UNION (SELECT 2 EXCEPT SELECT n FROM r)",
        f"{_SAID} within EXCEPT or INTERSECT",
        "42P19",
    ),
    (
        "SELECT 1 UNION SELECT max(n) FROM r",
        "aggregate functions are not allowed in a recursive query's recursive term",
        "42P19",
    ),
    ("SELECT 1 UNION ALL SELECT DISTINCT n FROM r", f"DISTINCT {_TERM}", "0A000"),
    ("SELECT 1 UNION (SELECT n FROM r LIMIT 1)", f"LIMIT {_TERM}", "0A000"),
    ("SELECT 1 UNION SELECT rank() OVER ()::int FROM r", f"window functions {_TERM}", "0A000"),
    (
        "SELECT 1 UNION (WITH x AS (SELECT n FROM r) SELECT n FROM x)",
        f"WITH {_TERM}",
        "0A000",
    ),
    (
        "SELECT 1 UNION SELECT n + 1 FROM r ORDER BY 1",
        "ORDER BY in a recursive query is not implemented",
        "0A000",
    ),
    (
        "SELECT 1 UNION SELECT n + 1.5 FROM r",
        'recursive query "r" column 1 has type integer in non-recursive term but type numeric overall',
        "42804",
    ),
]


@pytest.mark.parametrize(("query", "message", "state"), CASES)
def test_what_is_no_linear_recursion_is_refused(query: str, message: str, state: str) -> None:
    catalog = MemoryCatalog()
    catalog.run("CREATE TABLE t (a int);")
    with pytest.raises(SqlError) as raised:
        catalog.plan(f"WITH RECURSIVE r (n) AS ({query}) SELECT * FROM r")
    assert str(raised.value).split("\n")[0].startswith(message)
    assert raised.value.sqlstate == state
