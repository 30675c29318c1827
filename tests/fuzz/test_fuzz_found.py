"""What random queries have found, as small as it got: each has PostgreSQL's answer now."""

from __future__ import annotations

import pytest
from fuzz_engines import Failure, Worlds, bag
from fuzz_run import differ

SETUP = (
    "CREATE TABLE found (a integer, b text, c numeric(12, 2))",
    "INSERT INTO found VALUES (1, '', 1.25), (2, 'x,y', -2.50), (NULL, NULL, 99.99), (1, '', 1.25)",
    "CREATE TABLE nothing (x integer)",
    "CREATE TABLE signs (x integer, y numeric(12, 2), z double precision)",
    "INSERT INTO signs VALUES (1, -2.5, 1), (-1, 2.5, -1), (1, 2.5, NULL), (NULL, NULL, 3)",
)
QUERIES = (
    # A query in parentheses, alone or as an arm.
    "SELECT EXISTS ((SELECT 1)), EXISTS ((SELECT a FROM found) INTERSECT (SELECT 7))",
    # The parts of an empty text by a delimiter that is NULL.
    "SELECT b, split_part(b, (SELECT max(b) FROM found WHERE a > 5), 1), split_part(b, ',', a) FROM found",
    # Functions that write their arguments several times, one in another.
    "SELECT round(round(round(round(stddev(a * c) / 3, 3) / 7, 2) / 11, 3) / 13, 2) FROM found GROUP BY b",
    "SELECT CASE WHEN round(stddev((a | a)), 3) IS NULL THEN round(c / nullif(c, 0), 3) ELSE c END = 1 FROM found GROUP BY c",
    "SELECT stddev(a) > 0 AND (round(variance(a + 1), 3) = round(var_pop(a), 3) OR stddev(a) IS NULL)"
    " FROM found GROUP BY b HAVING NOT (stddev(a) > 1) OR count(*) > 0",
    # Windows over what has one row at most.
    "SELECT count(c) OVER (ORDER BY c), count(1) OVER (), sum(a) OVER (ORDER BY c), max(b) OVER (), lag(c) OVER (ORDER BY c)"
    " FROM (SELECT a, b, c FROM found ORDER BY c LIMIT 1) AS q",
    # Two opposite values have one square.
    "SELECT round(variance(DISTINCT x), 3), round(stddev_pop(DISTINCT y), 3), var_pop(DISTINCT z) FROM signs",
    "SELECT round(variance(DISTINCT x) FILTER (WHERE y > 0), 3), variance(DISTINCT x) FILTER (WHERE y > 9) FROM signs",
    # A bare text in an arm of a set operation is a text to who compares it.
    "SELECT 1 FROM ((SELECT min('x') AS x FROM found) UNION ALL (SELECT 'b ' FROM found) UNION (SELECT 'b' FROM signs)) AS q"
    " WHERE 'b' <= ALL (SELECT DISTINCT q.x FROM found)",
    # The complement of bits is written as a match of texts is.
    "SELECT f.a, ~f.a FROM found AS f JOIN signs AS s ON ~f.a = ~s.x AND ~f.a IS NOT DISTINCT FROM ~s.x",
    # What is constant, beside keys that are told after it: nothing is left to look it up in.
    "WITH t (a, b) AS (SELECT a, b FROM (VALUES (0, NULL::double precision, NULL::double precision), (1, '1.25', '0'), (1, NULL, '1e300'),"
    " (1, '1.25', 'NaN'), (1, '2', '-0')) AS v (i, a, b) WHERE i = 1) SELECT 1 FROM t LEFT JOIN (SELECT '1.25'::double precision AS x"
    " FROM t INNER JOIN t AS s ON true GROUP BY s.b) AS q ON t.a = q.x",
    # The greatest of texts that say no type is a text.
    "SELECT max('x'), 'a' <= ALL (SELECT min('b ') FROM found), min(NULL) FROM found GROUP BY b",
)  # fmt: skip


#: What asks rows that are not there.
OF_NOTHING = (
    # A constant array beside no row.
    "SELECT ARRAY[1, NULL], '{a}'::text[], '[1,2)'::int4range FROM nothing",
    "SELECT x, ARRAY[1, NULL] FROM signs WHERE x > 5",
)


@pytest.fixture(scope="module")
def filled(worlds: Worlds) -> Worlds:
    for statement in SETUP:
        worlds.both(statement)
    return worlds


@pytest.mark.parametrize("query", QUERIES)
def test_what_was_found_is_mended(filled: Worlds, query: str) -> None:
    ours, theirs = filled.mine(query), filled.theirs(query)
    assert not differ(ours, theirs), (ours, theirs)
    assert not isinstance(ours, Failure)
    assert sum(bag(ours).values()) > 0


@pytest.mark.parametrize("query", OF_NOTHING)
def test_what_was_found_of_no_rows_is_mended(filled: Worlds, query: str) -> None:
    assert filled.mine(query) == filled.theirs(query) == []


def test_a_second_with_is_no_part_of_the_first(filled: Worlds) -> None:
    answer = filled.mine("WITH a AS (SELECT 1) WITH b AS (SELECT 2) SELECT * FROM a, b")
    assert isinstance(answer, Failure)
    assert answer.sqlstate == "42601"
