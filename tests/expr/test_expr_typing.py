"""What the types of relations claim, held against rows: no NULL where none is said to be, keys that are unique."""

from __future__ import annotations

from mzsql.expr import relation as mir
from mzsql.expr.scalar import AggregateExpr, Call, Column, ColumnOrder, Literal
from mzsql.expr.typing import aggregate_type, column_type, relation_type
from mzsql.repr.ids import GlobalId
from mzsql.repr.types import BIGINT, BOOLEAN, DATE, INTEGER, TEXT, ColumnType, RelationType, SqlType

ORDERS = mir.Get(
    GlobalId("u1"),
    RelationType((ColumnType(INTEGER, False), ColumnType(INTEGER), ColumnType(DATE)), ((0,),)),
)
LINES = mir.Get(
    GlobalId("u2"),
    RelationType(
        (ColumnType(INTEGER, False), ColumnType(INTEGER, False), ColumnType(TEXT)), ((0, 1),)
    ),
)


def equal(left: int, right: int) -> Call:
    return Call("eq_integer", (Column(left), Column(right)), BOOLEAN)


def test_scalars() -> None:
    columns = ORDERS.typ.columns
    add = Call("add_integer", (Column(0), Column(1)), INTEGER)
    assert column_type(add, columns) == ColumnType(INTEGER, True)
    assert column_type(Call("add_integer", (Column(0), Column(0)), INTEGER), columns) == ColumnType(
        INTEGER, False
    )
    assert column_type(Call("is_null", (add,), BOOLEAN), columns) == ColumnType(BOOLEAN, False)
    fallback = Call("coalesce", (Column(1), Column(0)), INTEGER)
    assert column_type(fallback, columns) == ColumnType(INTEGER, False)
    assert column_type(Literal(None, TEXT), columns) == ColumnType(TEXT, True)


def test_aggregates() -> None:
    count = AggregateExpr("count", Column(1), False, BIGINT, False)
    largest = AggregateExpr("max_integer", Column(1), False, INTEGER)
    assert aggregate_type(count, ORDERS.typ.columns) == ColumnType(BIGINT, False)
    assert aggregate_type(largest, ORDERS.typ.columns) == ColumnType(INTEGER, True)


def test_a_filter_rules_out_null_and_shortens_keys() -> None:
    present = Call("not", (Call("is_null", (Column(1),), BOOLEAN),), BOOLEAN)
    typ = relation_type(mir.Filter(ORDERS, (present,)))
    assert [column.nullable for column in typ.columns] == [False, False, True]
    one = Call("eq_integer", (Column(0), Literal(7, INTEGER)), BOOLEAN)
    assert relation_type(mir.Filter(LINES, (one,))).keys == ((1,),)
    assert relation_type(mir.Filter(ORDERS, (one,))).keys == ((),)


def test_keys_through_projections_joins_and_groups() -> None:
    assert relation_type(mir.Project(LINES, (1, 2, 0))).keys == ((0, 2),)
    assert relation_type(mir.Project(LINES, (1, 2))).keys == ()
    join = mir.Join((LINES, ORDERS), ((Column(0), Column(3)),))
    assert relation_type(join).keys == ((0, 1),)
    # The rule knows no keys but those of the first input.
    assert relation_type(mir.Join((ORDERS, LINES), ((Column(0), Column(3)),))).keys == ()
    assert relation_type(mir.Join((ORDERS, LINES), ())).keys == ()
    count = AggregateExpr("count", Literal(True, BOOLEAN), False, BIGINT, False)
    grouped = mir.Reduce(LINES, (Column(2), Column(0)), (count,))
    typ = relation_type(grouped)
    assert typ.keys == ((0, 1),)
    assert typ.columns == (ColumnType(TEXT), ColumnType(INTEGER, False), ColumnType(BIGINT, False))
    alone = mir.Reduce(LINES, (), (count,))
    assert relation_type(alone).keys == ((),)


def test_what_may_be_negative_has_no_keys() -> None:
    assert relation_type(mir.Negate(ORDERS)).keys == ()
    assert relation_type(mir.Union((ORDERS, ORDERS))).keys == ()
    assert relation_type(mir.Threshold(ORDERS)).keys == ((0,),)


def test_the_first_of_each_group_is_unique() -> None:
    first = mir.TopK(LINES, (2,), (ColumnOrder(0),), Literal(1, BIGINT))
    assert (2,) in relation_type(first).keys


def test_bindings_carry_their_types() -> None:
    local = mir.Get(0, RelationType((ColumnType(INTEGER),)))
    bound = mir.Let(0, mir.Project(ORDERS, (0,)), local)
    assert relation_type(bound) == RelationType((ColumnType(INTEGER, False),), ((0,),))


def test_bindings_inside_of_a_recursion_hide_its_own() -> None:
    pair = RelationType((ColumnType(INTEGER), ColumnType(INTEGER)))
    narrow = mir.Constant((((1,), 1),), RelationType((ColumnType(INTEGER, False),)))
    turned = mir.Project(mir.Get(0, pair), (1, 0))
    # A view's own plan counts its bindings from 0 as well.
    view = mir.Let(0, narrow, mir.Union((mir.Get(0, narrow.typ), mir.Get(0, narrow.typ))))
    rel = mir.LetRec((0, 1), (turned, view), (None, None), mir.Get(0, pair))
    assert [c.type for c in relation_type(rel).columns] == [INTEGER, INTEGER]


def test_numerics_carry_their_scale() -> None:
    price = ColumnType(SqlType("numeric", scale=2), False)
    from mzsql.expr import functions

    add = functions.scalar("add_numeric").result_type([price.type, SqlType("numeric", scale=4)])
    mul = functions.scalar("mul_numeric").result_type([price.type, SqlType("numeric", scale=4)])
    assert (add.scale, mul.scale) == (4, 6)
    both = functions.scalar("mul_numeric").result_type([SqlType("numeric"), SqlType("numeric")])
    assert (both.scale, both.effective_scale) == (None, 18)
    assert functions.aggregate("sum_numeric").result_type([price.type]).scale == 2
