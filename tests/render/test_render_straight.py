"""What need not be in a step's statement, that the rest and it are what the statement was, and how both become outputs' updates."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest
import sqlglot

from mzsql.compute.replica.step.result import StepResult
from mzsql.render.rendered import StepOutput
from mzsql.render.rewrites.straight import Straight, taken_out

_OUTPUTS = (
    StepOutput(0, None, (), (0,)),
    StepOutput(1, "one", (), (0, 1)),
    StepOutput(2, "two", (), (1, 0)),
)

_EXPORT = (
    "SELECT CAST(0 AS INT) AS mz_tag, c0 + 1 AS c0, CAST(NULL AS INT) AS c1,"
    " CAST(NULL AS TEXT) AS mz_error, mz_time, mz_diff FROM delta"
)
_ONE = (
    "SELECT CAST(1 AS INT) AS mz_tag, c1 AS c0, c0 AS c1,"
    " CAST(NULL AS TEXT) AS mz_error, mz_time AS mz_time, mz_diff AS mz_diff FROM delta"
)
_TWO = _ONE.replace("CAST(1", "CAST(2")

#: A statement over delta, and what is taken out of it: tag and columns.
_CASES = {
    "a projection goes": (f"{_EXPORT} UNION ALL {_ONE}", {1: ("c1", "c0", "mz_time", "mz_diff")}),
    "its output's order counts": (_TWO, {2: ("c0", "c1", "mz_time", "mz_diff")}),
    "twice goes twice": (
        f"{_ONE} UNION ALL {_EXPORT} UNION ALL {_TWO}",
        {1: ("c1", "c0", "mz_time", "mz_diff"), 2: ("c0", "c1", "mz_time", "mz_diff")},
    ),
    "what is computed stays": (_EXPORT, {}),
    "a condition stays": (f"{_ONE} WHERE c0 > 1", {}),
    "distinct rows stay": (_ONE.replace("SELECT", "SELECT DISTINCT"), {}),
    "an error stays": (_ONE.replace("CAST(NULL AS TEXT) AS mz_error", "'no' AS mz_error"), {}),
    "a diff of its own stays": (_ONE.replace("mz_diff AS mz_diff", "1 AS mz_diff"), {}),
    "what is no relation stays": (
        f"WITH d AS (SELECT * FROM delta) {_ONE.replace('delta', 'd')}",
        {},
    ),
    "distinct unions stay": (f"{_EXPORT} UNION {_ONE}", {}),
}


def _delta() -> pa.Table:
    return pa.table(
        {
            "c0": pa.array([1, 2, None], pa.int32()),
            "c1": pa.array([7, None, 9], pa.int32()),
            "mz_time": pa.array([4, 5, 5], pa.int64()),
            "mz_diff": pa.array([1, -1, 2], pa.int64()),
        }
    )


def _schema(width: int) -> pa.Schema:
    names = [*(f"c{i}" for i in range(width)), *(["mz_error"] if width == 1 else [])]
    types = {"mz_error": pa.string()}
    fields = [pa.field(name, types.get(name, pa.int32())) for name in names]
    return pa.schema([*fields, ("mz_time", pa.int64()), ("mz_diff", pa.int64())])


@pytest.mark.parametrize("name", _CASES)
def test_what_is_taken_out_and_what_is_left_are_the_statement(name: str) -> None:
    text, expected = _CASES[name]
    connection = duckdb.connect()
    connection.register("delta", _delta())
    whole = connection.execute(text).to_arrow_table()
    left, straight = taken_out(sqlglot.parse_one(text, read="duckdb"), _OUTPUTS, {"delta"})
    assert straight == tuple(Straight(tag, "delta", columns) for tag, columns in expected.items())
    made = None if left is None else connection.execute(left.sql("duckdb")).to_arrow_table()
    assert (made is None) == (len(expected) == text.count("mz_tag"))
    for output in _OUTPUTS:
        schema = _schema(len(output.positions))
        known = StepResult(whole).rows(output, schema)
        found = StepResult(made, straight, {"delta": _delta()}).rows(output, schema)
        assert found.schema == schema
        assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, known.to_pylist()))


def test_what_only_others_had_is_no_column_any_more() -> None:
    left, straight = taken_out(
        sqlglot.parse_one(f"{_EXPORT} UNION ALL {_ONE}", read="duckdb"), _OUTPUTS, {"delta"}
    )
    assert len(straight) == 1
    assert left is not None
    assert [one.alias_or_name for one in left.selects] == [
        "mz_tag",
        "c0",
        "mz_error",
        "mz_time",
        "mz_diff",
    ]


def test_columns_are_handed_on_and_not_copied() -> None:
    delta = _delta()
    straight = Straight(1, "delta", ("c1", "c0", "mz_time", "mz_diff"))
    rows = StepResult(None, [straight], {"delta": delta}).rows(_OUTPUTS[1], _schema(2))
    given = delta.column("c1").chunk(0).buffers()[1]
    assert rows.column("c0").chunk(0).buffers()[1].address == given.address


def test_rows_of_outputs_that_alternate_are_found() -> None:
    made = pa.table(
        {
            "mz_tag": pa.array([1, 0, 1, 2, 0], pa.int32()),
            "c0": pa.array([1, 2, 3, 4, 5], pa.int32()),
            "c1": pa.array([6, 7, 8, 9, 10], pa.int32()),
            "mz_error": pa.array([None] * 5, pa.string()),
            "mz_time": pa.array([4] * 5, pa.int64()),
            "mz_diff": pa.array([1] * 5, pa.int64()),
        }
    )
    result = StepResult(made)
    found = [result.rows(one, _schema(len(one.positions))).to_pylist() for one in _OUTPUTS]
    assert [[row["c0"] for row in rows] for rows in found] == [[2, 5], [1, 3], [9]]
    assert [row["c1"] for row in found[1]] == [6, 8]
