"""The names of a select list's items.

Promise: as in PostgreSQL, a column is named by its alias, by the column it is, or by the function it calls; else by the
type it is cast to, ``case``, or ``?column?``. A subquery has the name of its column.
"""

from __future__ import annotations

from sqlglot import expressions as exp

from mzsql.frontend.parse.pieces import fold
from mzsql.frontend.scalar.context import Subqueries
from mzsql.frontend.scalar.nodes import function_name
from mzsql.frontend.scalar.qualified import bare

_KINDS: dict[type[exp.Expr], str] = {
    exp.Exists: "exists",
    exp.Array: "array",
    exp.List: "list",
    exp.ToMap: "map",
    exp.Tuple: "row",
    exp.Overlay: "overlay",
    exp.Extract: "extract",
    exp.Substring: "substring",
    exp.StrPosition: "position",
    exp.CurrentDate: "current_date",
    exp.CurrentTimestamp: "current_timestamp",
    exp.CurrentUser: "current_user",
    exp.SessionUser: "session_user",
    exp.CurrentCatalog: "current_catalog",
    exp.CurrentSchema: "current_schema",
    exp.Interval: "interval",
    exp.AtTimeZone: "timezone",
    exp.Boolean: "bool",
}
_TRIMS = {"LEADING": "ltrim", "TRAILING": "rtrim"}
_TYPE_NAMES = {
    "INT": "int4",
    "BIGINT": "int8",
    "SMALLINT": "int2",
    "DECIMAL": "numeric",
    "DOUBLE": "float8",
    "FLOAT": "float4",
    "BOOLEAN": "bool",
    "CHAR": "bpchar",
    "VARBINARY": "bytea",
}


#: Nodes whose name is used only where nothing inside them has a better one.
_WEAK = frozenset({exp.Boolean, exp.Interval})


def output_name(node: exp.Expr, subqueries: Subqueries) -> str:
    """The name of a select list's item.

    Args:
        node: the item.
        subqueries: the names of its subqueries, which have been planned before.
    """
    return _named(node, subqueries)[0]


def _named(node: exp.Expr, subqueries: Subqueries) -> tuple[str, bool]:
    """A name, and whether it takes precedence over the name of a type that the value is cast to."""
    match node:
        case exp.Alias():
            return fold(node.args["alias"]), True
        case exp.Column(this=exp.Star()):
            return fold(node.args["table"]), True
        case exp.Column() | exp.Dot():
            last = node.this if isinstance(node, exp.Column) else node.expression
            return fold(bare(last)), True
        case exp.Anonymous():
            return function_name(node), True
        case (
            exp.Paren()
            | exp.Filter()
            | exp.Window()
            | exp.IgnoreNulls()
            | exp.RespectNulls()
            | exp.WithinGroup()
        ):
            return _named(node.this, subqueries)
        case exp.Bracket():
            return _named(node.this, subqueries)
        case exp.Cast():
            inner, good = _named(node.this, subqueries)
            if good:
                return inner, True
            return _type_name(node.args["to"]), False
        case exp.Case():
            default = node.args.get("default")
            name, good = ("case", False) if default is None else _named(default, subqueries)
            return (name, True) if good else ("case", False)
        case exp.Subquery() | exp.Select() | exp.Values():
            _, name = subqueries.get(id(node), (node, "?column?"))
            return name, name != "?column?"
        case exp.Trim():
            return _TRIMS.get(str(node.args.get("position")), "btrim"), True
        case _:
            known = _KINDS.get(type(node), "?column?")
            return known, known != "?column?" and type(node) not in _WEAK


def _type_name(node: exp.Expr) -> str:
    """A type's name as a column name."""
    kind = node.this
    name = kind.value if isinstance(kind, exp.DType) else str(kind)
    if kind is exp.DType.ARRAY and isinstance(node, exp.DataType) and node.expressions:
        # An array type is named after its element type, whatever its number of dimensions.
        return "_" + _type_name(node.expressions[0]).removeprefix("_")
    spelled = node.args.get("kind")
    if kind is exp.DType.USERDEFINED and spelled is not None:
        last = spelled.expression if isinstance(spelled, exp.Dot) else spelled
        name = last.name if isinstance(last, exp.Expr) else str(last)
    return _TYPE_NAMES.get(name, name.lower())
