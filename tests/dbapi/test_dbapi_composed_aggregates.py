"""Aggregates that are made of others, in maintained views: after each change the view has what PostgreSQL says of the rows."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from answers_kit import expected, make_database, rows_of, set_up
from postgres_server import PostgresServer

import mzsql

pytestmark = pytest.mark.long

_TABLE = "CREATE TABLE f (g integer, x double precision, y double precision, v integer, c text)"
_VIEWS = {
    "bits": "SELECT g, bit_and(v), bit_or(v), bit_xor(v), every(v > 2) FROM f GROUP BY g",
    "sets": "SELECT g, mode() WITHIN GROUP (ORDER BY c), percentile_disc(0.4) WITHIN GROUP (ORDER BY v),"
    " percentile_cont(0.5) WITHIN GROUP (ORDER BY x), rank(3) WITHIN GROUP (ORDER BY v) FROM f GROUP BY g",
    "ranked": "SELECT g, rank(NULL) WITHIN GROUP (ORDER BY v), cume_dist(NULL) WITHIN GROUP (ORDER BY v DESC),"
    " (any_value(ARRAY[g, 1]) FILTER (WHERE v > 4))[1] FROM f GROUP BY g",
    "lines": "SELECT g, regr_count(y, x), covar_pop(y, x), regr_slope(y, x) FROM f GROUP BY g",
}
_CHANGES = (
    "INSERT INTO f VALUES (1, 1, 2, 5, 'a'), (1, 2, 4, 3, 'b'), (1, 3, 6, 5, 'b'), (2, 1, 1, 7, NULL), (2, NULL, 3, 4, 'a')",
    "INSERT INTO f VALUES (1, 5, 2, 1, 'q'), (2, 8, 1, NULL, 'z'), (3, NULL, NULL, NULL, NULL)",
    "DELETE FROM f WHERE c = 'b'",
    "UPDATE f SET v = 6, x = 4 WHERE g = 2",
)


@pytest.fixture(scope="module")
def postgres() -> Iterator[psycopg.Connection]:
    """A database of PostgreSQL's."""
    with PostgresServer() as server, make_database(server, "composed") as session:
        yield session


def test_views_follow_changes(
    tmp_path_factory: pytest.TempPathFactory, postgres: psycopg.Connection
) -> None:
    """Every view, after every change."""
    home = tmp_path_factory.mktemp("composed") / "env"
    with set_up(home, postgres, [_TABLE]) as con:
        for name, query in _VIEWS.items():
            con.execute(f"CREATE MATERIALIZED VIEW {name} AS {query}")
        for change in _CHANGES:
            con.execute(change)
            postgres.execute(change.encode())
            for name, query in _VIEWS.items():
                _check(con, postgres, name, query)


def _check(con: mzsql.Connection, postgres: psycopg.Connection, name: str, query: str) -> None:
    ours = rows_of(con, f"SELECT * FROM {name} ORDER BY g")
    theirs = expected(postgres, f"{query} ORDER BY g")
    assert len(ours) == len(theirs)
    for mine, right in zip(ours, theirs, strict=True):
        assert list(mine) == pytest.approx(list(right)), (name, mine, right)
