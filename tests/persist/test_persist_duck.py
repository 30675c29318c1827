"""DuckDB's connections: a result as Arrow."""

from __future__ import annotations

import contextlib
import warnings

import duckdb
import pyarrow as pa
import pytest

from mzsql.persist import duck


def test_a_result_is_made_as_arrow_and_not_copied() -> None:
    with duck.connection() as connection, warnings.catch_warnings():
        # As DuckDB does where it has a second statement read the first one's rows.
        warnings.simplefilter("error")
        connection.register("given", pa.table({"a": [3, 1, 2]}))
        found = duck.table_of(connection, "SELECT a + $b AS c FROM given ORDER BY a", {"b": 10})
        assert found.to_pydict() == {"c": [11, 12, 13]}
        assert duck.table_of(connection, "SELECT a FROM given WHERE a > 9").num_rows == 0


def test_a_prepared_statement_gives_arrow_each_time() -> None:
    with contextlib.closing(duck.opened()) as connection:
        connection.execute("PREPARE sums AS SELECT $a::bigint + $b::bigint AS c")
        for a in range(3):
            found = duck.table_of(connection, f"EXECUTE sums(a := {a}, b := 1)")
            assert found == pa.table({"c": pa.array([a + 1], pa.int64())})


def test_a_failing_query_raises_duckdbs_error() -> None:
    with duck.connection() as connection, pytest.raises(duckdb.ConversionException):
        duck.table_of(connection, "SELECT 'x'::integer")
