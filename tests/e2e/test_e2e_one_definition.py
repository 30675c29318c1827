"""A value that keys, joins or is stored has one definition: views are what their queries answer, and empty when their tables are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pytest
from spark_kit import hydrated_by_spark

import mzsql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def con(
    tmp_path_factory: pytest.TempPathFactory, spark: SparkSession
) -> Iterator[mzsql.Connection]:
    place = str(tmp_path_factory.mktemp("answers") / "env")
    # Hydrated by one engine, stepped by the other.
    with hydrated_by_spark(), mzsql.connect(place, spark=spark) as made:
        # A machine with much else to do takes its time.
        made.execute("SET statement_timeout = '10min'")
        yield made


class Views:
    """Tables of a test's own, views over them, and what they have to be after every change."""

    def __init__(self, con: mzsql.Connection, schema: str, tables: Sequence[str]) -> None:
        self._con = con
        self._names = [table.split(" ", 1)[0] for table in tables]
        self._views: dict[str, str] = {}
        con.execute(f"CREATE SCHEMA {schema}")
        con.execute(f"SET search_path = {schema}")
        for table in tables:
            con.execute(f"CREATE TABLE {table}")

    def view(self, query: str) -> None:
        """A materialized view of a query."""
        name = f"v{len(self._views)}"
        self._con.execute(f"CREATE MATERIALIZED VIEW {name} AS {query}")
        self._views[name] = query

    def run(self, *statements: str) -> dict[str, Counter[str]]:
        """After each statement the views are what their queries answer; what they are in the end."""
        seen: dict[str, Counter[str]] = {}
        for statement in statements:
            self._con.execute(statement)
            for name, query in self._views.items():
                view = self._con.execute(f"SELECT * FROM {name}").fetchall()
                asked = self._con.execute(query).fetchall()
                assert bag(view) == bag(asked), (statement, query)
                seen[name] = bag(view)
        return seen

    def emptied(self) -> None:
        """Views are empty when their tables are."""
        for name, rows in self.run(*(f"DELETE FROM {name}" for name in self._names)).items():
            assert not rows, (name, self._views[name], rows)


def bag(rows: Sequence[Sequence[object]]) -> Counter[str]:
    """Rows with how often they occur: told apart by all that shows."""
    return Counter(repr(tuple(row)) for row in rows)


def test_joins_of_numerics_of_different_scales_put_out_each_side_as_it_is(
    con: mzsql.Connection,
) -> None:
    tables = ["a (n numeric(20,4), k int)", "c (n numeric(12,2), k int)", "w (n numeric(38,0))"]
    views = Views(con, "scales", tables)
    views.view("SELECT a.n, c.n AS m FROM a JOIN c ON a.n = c.n")
    views.view("SELECT a.n FROM a WHERE a.n IN (SELECT n FROM c)")
    views.view("SELECT a.n, c.n AS m FROM a LEFT JOIN c ON a.n = c.n")
    views.view("SELECT a.n, w.n AS m FROM a, w WHERE a.n = w.n")
    views.view("SELECT n FROM c EXCEPT SELECT n FROM a")
    views.view("SELECT a.n + c.n AS s, a.n FROM a, c WHERE a.n = c.n AND a.n = 2")
    views.view(
        "SELECT a.k FROM a WHERE NOT EXISTS (SELECT FROM c WHERE c.n IS NOT DISTINCT FROM a.n)"
    )
    views.view("SELECT CASE WHEN a.k > 1 THEN a.n ELSE c.n END AS x FROM a JOIN c USING (k)")
    found = views.run(
        "INSERT INTO a VALUES (2.0001, 1), (2, 2), (NULL, 3), (99999999999999.5, 4)",
        "INSERT INTO c VALUES (2, 1), (2.5, 2), (NULL, 3), (3, 4)",
        "INSERT INTO w VALUES (99999999999999999999999999999999999999), (2), (NULL)",
        "UPDATE a SET n = n + 0.5 WHERE k = 2",
        "UPDATE c SET n = 2 WHERE k > 1",
        "UPDATE a SET n = 2 WHERE k = 2",
    )
    assert found["v1"] == bag([(mzsql_decimal("2.0000"),)])
    views.emptied()


def test_joins_of_padded_texts_of_different_lengths(con: mzsql.Connection) -> None:
    views = Views(
        con, "padded", ["a (c char(3), v varchar(3))", "b (c char(6), v varchar(7), t text)"]
    )
    views.view("SELECT a.c, b.c AS d FROM a JOIN b ON a.c = b.c")
    views.view("SELECT a.v, b.v AS w FROM a JOIN b ON a.v = b.v")
    views.view("SELECT a.v, b.t AS w FROM a JOIN b ON a.v = b.t WHERE b.t = 'ab'")
    views.view("SELECT a.c FROM a WHERE a.c IN (SELECT c FROM b)")
    found = views.run(
        "INSERT INTO a VALUES ('ab', 'ab')", "INSERT INTO b VALUES ('ab', 'ab', 'ab')"
    )
    assert all(len(rows) == 1 for rows in found.values()), found
    views.emptied()


def test_what_engines_would_compute_otherwise_is_computed_by_one(con: mzsql.Connection) -> None:
    """Keys are computed for the lookup by one engine and for the step by another."""
    views = Views(con, "evaluated", ["e (ts timestamp, tz timestamptz, t text, x float, j jsonb)"])
    views.view("SELECT ts AT TIME ZONE 'Europe/Oslo' AS z, count(*) AS n FROM e GROUP BY 1")
    views.view("SELECT tz AT TIME ZONE 'Europe/Oslo' AS z, max(t) AS t FROM e GROUP BY 1")
    views.view(
        "SELECT upper(t) AS u, lower(t) AS l, initcap(t) AS i, count(*) AS n FROM e GROUP BY 1, 2, 3"
    )
    views.view(
        "SELECT exp(x) AS a, sin(x) AS b, cbrt(x) AS c, x::text AS d, count(*) AS n FROM e GROUP BY x"
    )
    views.view("SELECT j -> 'a' AS a, string_to_array(t, 'a') AS s, reverse(t) AS r FROM e")
    views.view(
        "SELECT a.t FROM e AS a JOIN e AS b ON upper(a.t) = upper(b.t) WHERE ln(b.x + 1) > 0"
    )
    row = "('2024-10-27 02:30', '2024-10-27 00:30Z', 'Straße', 0.7, '{\"a\": [1, null]}')"
    other = "('2024-03-31 02:30', '1880-01-01', 'İIe\u0301ﬁ𝒳', 33.3, '[1]')"
    found = views.run(
        f"INSERT INTO e VALUES {row}",
        f"INSERT INTO e VALUES {row}",
        f"INSERT INTO e VALUES {other}",
        "DELETE FROM e WHERE t LIKE 'İ%'",
    )
    assert [sum(found[view].values()) for view in ("v0", "v1", "v2", "v3", "v4", "v5")] == [
        1,
        1,
        1,
        1,
        2,
        4,
    ]
    views.emptied()


def test_table_functions_of_texts_and_documents_are_maintained(con: mzsql.Connection) -> None:
    views = Views(con, "unfolded", ["e (t text, j jsonb)"])
    views.view("SELECT m, count(*) AS n FROM e, regexp_matches(t, '\\w+', 'g') AS m GROUP BY m")
    views.view("SELECT k.key, k.value, t FROM e, jsonb_each(j) AS k")
    found = views.run("INSERT INTO e VALUES ('é ß x', '{\"a\": [1], \"b\": null}'), ('x', '{}')")
    assert sum(found["v1"].values()) == 2
    views.emptied()


def mzsql_decimal(text: str) -> object:
    """A number as rows have it."""
    from decimal import Decimal

    return Decimal(text)
