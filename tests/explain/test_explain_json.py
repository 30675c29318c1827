"""EXPLAIN AS JSON: the bytes of rows, the names of functions, the shape of nodes."""

from __future__ import annotations

import msgspec
import pytest

from mzsql.explain import variants
from mzsql.explain.json_relations import relation
from mzsql.explain.row_bytes import datum
from mzsql.expr import functions
from mzsql.expr import relation as mir
from mzsql.expr.scalar import Call, Column, Literal
from mzsql.repr.datum import Datum
from mzsql.repr.types import (
    BIGINT,
    BOOLEAN,
    BYTEA,
    DATE,
    DOUBLE,
    INTEGER,
    INTERVAL,
    JSONB,
    NUMERIC,
    SMALLINT,
    TEXT,
    TIME,
    TIMESTAMP,
    UINT8,
    ColumnType,
    RelationType,
    SqlType,
)

NUMBERS = RelationType((ColumnType(INTEGER), ColumnType(BIGINT, False)), ((1,),))


@pytest.mark.parametrize(
    ("value", "typ", "packed"),
    [
        (None, TEXT, [0]),
        (False, BOOLEAN, [1]),
        (True, BOOLEAN, [2]),
        (0, INTEGER, [44]),
        (7, SMALLINT, [42, 7]),
        (258, INTEGER, [46, 2, 1]),
        (-1, INTEGER, [61]),
        (-2, BIGINT, [67, 254]),
        (-300, SMALLINT, [60, 212, 254]),
        (128, BIGINT, [50, 128]),
        (2**63 - 1, BIGINT, [57, *[255] * 7, 127]),
        (-(2**63), BIGINT, [74, *[0] * 7, 128]),
        (2**64 - 1, UINT8, [93, *[255] * 8]),
        ("ab", TEXT, [19, 2, 97, 98]),
        ("c0ffee", BYTEA, [15, 3, 192, 255, 238]),
        (10957, DATE, [10, 0, 0, 0, 0]),
        (1_000_001, TIME, [11, 1, 0, 0, 0, 232, 3, 0, 0]),
        (1, TIMESTAMP, [39, 232, 3, 0, 0, 0, 0, 0, 0]),
        ("1 -1 2", INTERVAL, [14, 1, 0, 0, 0, 255, 255, 255, 255, 2, 0, 0, 0, 0, 0, 0, 0]),
        (0.5, DOUBLE, [9, 0, 0, 0, 0, 0, 0, 224, 63]),
        ("12.50", NUMERIC, [32, 3, 255, 0, 125, 0]),
        ("-1234", NUMERIC, [32, 4, 0, 128, 234, 0, 1, 0]),
        ('["a"]', SqlType("list", element=TEXT), [25, 3, 19, 1, 97]),
        ("[null, true]", JSONB, [25, 2, 30, 2]),
    ],
)
def test_the_bytes_of_a_value(value: Datum, typ: SqlType, packed: list[int]) -> None:
    assert list(datum(value, typ)) == packed


def test_a_long_text_has_a_longer_length() -> None:
    assert list(datum("x" * 256, TEXT))[:4] == [20, 0, 1, 120]


@pytest.mark.parametrize(
    ("key", "args", "typ", "shown"),
    [
        ("add_integer", 2, INTEGER, ("CallBinary", "AddInt32")),
        ("gte_text", 2, BOOLEAN, ("CallBinary", "Gte")),
        ("neg_double", 1, DOUBLE, ("CallUnary", {"NegFloat64": None})),
        ("is_null", 1, BOOLEAN, ("CallUnary", {"IsNull": None})),
        ("integer_to_bigint", 1, BIGINT, ("CallUnary", {"CastInt32ToInt64": None})),
        ("uint2_to_text", 1, TEXT, ("CallUnary", {"CastUint16ToString": None})),
        ("extract_year_ts", 1, NUMERIC, ("CallUnary", {"ExtractTimestamp": "Year"})),
        ("add_interval_timestamp", 2, TIMESTAMP, ("CallBinary", "AddTimestampInterval")),
        ("add_time_interval", 2, TIME, ("CallBinary", "AddTimeInterval")),
        ("mul_double_interval", 2, INTERVAL, ("CallBinary", "MulInterval")),
        ("and", 3, BOOLEAN, ("CallVariadic", "And")),
        (
            "array_item",
            1,
            SqlType("record", fields=(("f1", ColumnType(DATE)),)),
            ("CallVariadic", {"ArrayCreate": {"elem_type": "Date"}}),
        ),
        ("coalesce", 1, TEXT, ("CallVariadic", "Coalesce")),
        ("substr_from", 2, TEXT, ("CallVariadic", "Substr")),
        ("btrim", 1, TEXT, ("CallUnary", {"TrimWhitespace": None})),
        ("btrim_characters", 2, TEXT, ("CallBinary", "Trim")),
    ],
)
def test_a_function_has_the_name_of_its_variant(
    key: str, args: int, typ: SqlType, shown: tuple[str, object]
) -> None:
    assert variants.scalar_func(key, args, typ) == shown


def test_every_function_and_aggregate_has_a_name() -> None:
    for func in functions.all_scalars():
        count = len(func.args) or 1
        typ = SqlType("record", fields=(("f1", ColumnType(TEXT)),))
        kind, name = variants.scalar_func(func.key, count, typ)
        assert kind in ("CallUnary", "CallBinary", "CallVariadic")
        assert name
    for aggregate in functions.all_aggregates():
        assert variants.aggregate_func(aggregate.key)
    for table in functions.all_table_funcs():
        assert variants.table_func(table.key, table.output)


def test_a_relation_nests_its_input_first() -> None:
    get = mir.Get("u7", NUMBERS, mir.AccessPersist())
    plus = Call("add_bigint", (Column(1), Literal(1, BIGINT)), BIGINT)
    shown = relation(mir.Project(mir.Map(mir.Union((get, mir.Negate(get))), (plus,)), (2,)))
    read = {
        "Get": {
            "id": {"Global": {"User": 7}},
            "typ": {
                "column_types": [
                    {"scalar_type": "Int32", "nullable": True},
                    {"scalar_type": "Int64", "nullable": False},
                ],
                "keys": [[1]],
            },
            "access_strategy": "Persist",
        }
    }
    one = [{"Ok": {"data": [50, 1]}}, {"scalar_type": "Int64", "nullable": False}]
    added = {"CallBinary": {"func": "AddInt64", "expr1": {"Column": 1}, "expr2": {"Literal": one}}}
    union = {"Union": {"base": read, "inputs": [{"Negate": {"input": read}}]}}
    assert shown == {
        "Project": {"input": {"Map": {"input": union, "scalars": [added]}}, "outputs": [2]}
    }
    assert list(shown["Project"]) == ["input", "outputs"]
    assert msgspec.json.decode(msgspec.json.encode(shown)) == shown


def test_window_functions_tell_order_and_frame() -> None:
    order = [{"column": 0, "desc": True, "nulls_last": False}]
    default = {
        "units": "Range",
        "start_bound": "UnboundedPreceding",
        "end_bound": "CurrentRow",
    }
    by = "order_by=[#0 desc nulls_first]"
    lag = {"LagLead": {"order_by": order, "lag_lead": "Lag", "ignore_nulls": False}}
    first = {"FirstValue": {"order_by": order, "window_frame": default}}
    rows = {"units": "Rows", "start_bound": {"OffsetPreceding": 2}, "end_bound": "CurrentRow"}
    frame = "rows between 2 preceding and current row"
    for key, shown in [
        (f"lag[{by}]", lag),
        (f"rank[{by}]", {"Rank": {"order_by": order}}),
        (f"first_value[{by}]", first),
        (
            f"window_agg[sum_integer {by} {frame}]",
            {
                "WindowAggregate": {
                    "wrapped_aggregate": "SumInt32",
                    "order_by": order,
                    "window_frame": rows,
                }
            },
        ),
        (
            f"fused_value_window_func[lag[{by}], first_value[{by}] {by}]",
            {"FusedValueWindowFunc": {"funcs": [lag, first], "order_by": order}},
        ),
        (
            f"fused_window_agg[sum_integer, count {by}]",
            {
                "FusedWindowAggregate": {
                    "wrapped_aggregates": ["SumInt32", "Count"],
                    "order_by": order,
                    "window_frame": default,
                }
            },
        ),
    ]:
        assert variants.aggregate_func(key) == shown
    assert variants.scalar_func("record_get_3", 1, INTEGER) == ("CallUnary", {"RecordGet": 2})
