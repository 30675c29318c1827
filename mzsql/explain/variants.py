"""The names of functions, aggregates, types and errors in plans AS JSON: those of Materialize's enumerations.

Promise: every row of the table of functions has a name, built from its SQL name and types: ``AddInt32``,
``CastInt32ToString``, ``MaxDate``. Where Materialize's name does not follow this rule it is listed here; a function
that Materialize lacks gets a name by the rule.
"""

from __future__ import annotations

from typing import Any

from mzsql.expr import functions
from mzsql.expr.functions.aggregate import windows
from mzsql.expr.functions.aggregate.aggregates import Order, parse_ordered_key
from mzsql.expr.relation import WRAP
from mzsql.expr.scalar import Call
from mzsql.repr.types import ColumnType, RelationType, SqlType

#: Types' names inside function names.
_IN_FUNCTIONS = {
    "boolean": "Bool",
    "smallint": "Int16",
    "integer": "Int32",
    "bigint": "Int64",
    "uint2": "UInt16",
    "uint4": "UInt32",
    "uint8": "UInt64",
    "oid": "Oid",
    "real": "Float32",
    "double": "Float64",
    "text": "String",
    "varchar": "VarChar",
    "bytea": "Bytes",
    "timestamptz": "TimestampTz",
    "mz_timestamp": "MzTimestamp",
}
#: Types' names as types, where they differ.
_SCALAR_TYPES = {"text": "String", "bytea": "Bytes", "unknown": "String"}
_OPERATORS = {
    "+": "Add",
    "-": "Sub",
    "*": "Mul",
    "/": "Div",
    "%": "Mod",
    "&": "BitAnd",
    "|": "BitOr",
    "#": "BitXor",
    "~": "BitNot",
}
_COMPARISONS = {"=": "Eq", "<>": "NotEq", "<": "Lt", "<=": "Lte", ">": "Gt", ">=": "Gte"}
_LIKES = {"~~": False, "~~*": True}
#: Functions whose names do not contain their types.
_NAMED = {
    "||": "TextConcat",
    "and": "And",
    "or": "Or",
    "not": "Not",
    "is_null": "IsNull",
    "is_true": "IsTrue",
    "is_false": "IsFalse",
    "coalesce": "Coalesce",
    "greatest": "Greatest",
    "least": "Least",
    "upper": "Upper",
    "lower": "Lower",
    "reverse": "Reverse",
    "initcap": "Initcap",
    "ascii": "Ascii",
    "substr": "Substr",
    "substring": "Substr",
    "replace": "Replace",
    "split_part": "SplitPart",
    "translate": "Translate",
    "lpad": "PadLeading",
    "rpad": "PadTrailing",
    "left": "Left",
    "right": "Right",
    "position": "Position",
    "strpos": "Position",
    "repeat": "RepeatString",
    "starts_with": "StartsWith",
    "char_length": "CharLength",
    "character_length": "CharLength",
    "concat": "Concat",
    "concat_ws": "ConcatWs",
    "justify_hours": "JustifyHours",
    "justify_days": "JustifyDays",
    "justify_interval": "JustifyInterval",
    "to_timestamp": "ToTimestamp",
    "array": "ArrayCreate",
    "list": "ListCreate",
}
_TRIMS = {"btrim": "Trim", "trim": "Trim", "ltrim": "TrimLeading", "rtrim": "TrimTrailing"}
_ITEMS = {"array_item": "ArrayCreate", "list_item": "ListCreate"}
#: Functions of fixed arity that are variadic in Materialize.
_VARIADIC = frozenset({"Substr", "PadLeading", "PadTrailing", "Greatest", "Least", "Coalesce"})
#: In an addition of two types, these come second.
_SECOND = ("Int32", "Time", "Interval")
_OF_UNITS = ("extract", "date_part", "date_trunc")
_LISTED = {"array_agg": "ArrayConcat", "list_agg": "ListConcat", "string_agg": "StringAgg"}


def camel(name: str) -> str:
    """``round_numeric`` as ``RoundNumeric``."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def in_function(typ: SqlType) -> str:
    """A type within a function's name."""
    return _IN_FUNCTIONS.get(typ.kind, camel(typ.kind))


def scalar_type(typ: SqlType) -> Any:
    """A type."""
    match typ.kind:
        case "numeric":
            return {"Numeric": {"max_scale": typ.scale}}
        case "timestamp":
            return {"Timestamp": {"precision": None}}
        case "timestamptz":
            return {"TimestampTz": {"precision": None}}
        case "varchar":
            return {"VarChar": {"max_length": typ.length}}
        case "char":
            return {"Char": {"length": typ.length}}
        case "array" if typ.element is not None:
            return {"Array": scalar_type(typ.element)}
        case "list" if typ.element is not None:
            return {"List": {"element_type": scalar_type(typ.element), "custom_id": None}}
        case "map" if typ.element is not None:
            return {"Map": {"value_type": scalar_type(typ.element), "custom_id": None}}
        case "range" if typ.element is not None:
            return {"Range": {"element_type": scalar_type(typ.element)}}
        case "record":
            fields = [[name, column_type(column)] for name, column in typ.fields]
            return {"Record": {"fields": fields, "custom_id": None}}
        case kind:
            return _SCALAR_TYPES.get(kind, in_function(typ))


def column_type(column: ColumnType) -> dict[str, Any]:
    """A type and whether NULL may occur."""
    return {"scalar_type": scalar_type(column.type), "nullable": column.nullable}


def relation_type(typ: RelationType) -> dict[str, Any]:
    """The columns and keys of a relation."""
    return {
        "column_types": [column_type(column) for column in typ.columns],
        "keys": [list(key) for key in typ.keys],
    }


def error(message: str) -> Any:
    """An evaluation error, by its text."""
    match message:
        case "division by zero":
            return "DivisionByZero"
        case "more than one record produced in subquery":
            return "MultipleRowsFromSubquery"
        case "numeric field overflow":
            return "NumericFieldOverflow"
        case _:
            return {"Internal": message}


def scalar_func(key: str, args: int, typ: SqlType) -> tuple[str, Any]:
    """The kind of call for a function with ``args`` arguments (``CallUnary``, …), and its name with parameters."""
    func = functions.scalar(key)
    if func.name == "cast":
        return "CallUnary", _cast(func, typ)
    if func.name == "record_get":
        return "CallUnary", {"RecordGet": int(key.rpartition("_")[2]) - 1}
    for prefix in _OF_UNITS:
        if func.name.startswith(f"{prefix}_"):
            unit = camel(func.name.removeprefix(f"{prefix}_"))
            return "CallUnary", {f"{camel(prefix)}{in_function(func.args[0])}": unit}
    if func.key in _ITEMS:
        return "CallVariadic", {_ITEMS[func.key]: {"elem_type": scalar_type(typ.fields[0][1].type)}}
    name = _name(func)
    if func.variadic is not None or (args != 1 and (args > 2 or name in _VARIADIC)):
        payload = {"elem_type": scalar_type(typ.element)} if typ.element is not None else None
        return "CallVariadic", name if payload is None else {name: payload}
    if args == 1:
        return "CallUnary", {name: None}
    if func.name in _LIKES:
        return "CallBinary", {"IsLikeMatch": {"case_insensitive": _LIKES[func.name]}}
    return "CallBinary", name


def _cast(func: functions.ScalarFunc, typ: SqlType) -> dict[str, Any]:
    source = in_function(func.args[0]).replace("UInt", "Uint")
    name = f"Cast{source}To{in_function(typ).replace('UInt', 'Uint')}"
    match typ.kind:
        case "numeric":
            return {name: typ.scale}
        case "varchar" | "char" if func.args[0].kind in ("text", "varchar"):
            return {name: {"length": typ.length, "fail_on_len": func.key.endswith("_checked")}}
        case _:
            return {name: None}


def _name(func: functions.ScalarFunc) -> str:
    if func.name in _COMPARISONS:
        return _COMPARISONS[func.name]
    if func.name in _NAMED:
        return _NAMED[func.name]
    if func.name in _TRIMS:
        return _TRIMS[func.name] + ("Whitespace" if len(func.args) == 1 else "")
    if func.name in ("octet_length", "length") and func.args:
        return "ByteLengthBytes" if func.args[0].kind == "bytea" else "ByteLengthString"
    kinds = [in_function(arg) for arg in func.args]
    if func.name in _OPERATORS:
        if len(kinds) == 1:
            return ("BitNot" if func.name == "~" else "Neg") + kinds[0]
        # The interval (or a date's time) comes second, whatever the order in the text.
        kinds.sort(key=lambda kind: _SECOND.index(kind) if kind in _SECOND else -1)
        mixed = kinds[0] != kinds[1] and func.name in ("+", "-")
        operand = "Interval" if "Interval" in kinds and not mixed else kinds[0]
        return _OPERATORS[func.name] + (f"{kinds[0]}{kinds[1]}" if mixed else operand)
    if func.name == "date_bin":
        return f"DateBin{kinds[1]}"
    return camel(func.name) + (kinds[0] if kinds else "")


def record(call: Call, names: list[str]) -> tuple[str, Any]:
    """A record of fields with these names."""
    assert len(names) == len(call.args)
    return "CallVariadic", {"RecordCreate": {"field_names": names}}


def aggregate_func(key: str) -> Any:
    """An aggregate."""
    window = windows.parse(key)
    if window is not None:
        return _window_func(window)
    ordered = parse_ordered_key(key)
    if ordered is not None:
        base, order = ordered
        return {_LISTED.get(base, camel(base)): {"order_by": _order(order)}}
    func = functions.aggregate(key)
    if func.name in ("count", "any", "all"):
        return camel(func.name)
    if func.name in _LISTED:
        return {_LISTED[func.name]: {"order_by": []}}
    return camel(func.name) + "".join(in_function(arg) for arg in func.args[:1])


def _order(order: Order) -> list[dict[str, Any]]:
    return [
        {"column": column, "desc": desc, "nulls_last": last}
        for column, (desc, last) in enumerate(order)
    ]


def _window_func(window: windows.WindowFunc) -> Any:
    """A window function as an aggregate."""
    order = _order(window.order)
    framed = {"order_by": order, "window_frame": _window_frame(window.frame)}
    if window.kind == "aggregate":
        return {"WindowAggregate": {"wrapped_aggregate": aggregate_func(window.func), **framed}}
    if window.func == windows.FUSED["aggregate"]:
        wrapped = [aggregate_func(part.func) for part in window.parts]
        return {"FusedWindowAggregate": {"wrapped_aggregates": wrapped, **framed}}
    if window.kind == "fused":
        funcs = [_window_func(part) for part in window.parts]
        return {"FusedValueWindowFunc": {"funcs": funcs, "order_by": order}}
    if window.func in ("lag", "lead"):
        nulls = {"lag_lead": camel(window.func), "ignore_nulls": window.ignore_nulls}
        return {"LagLead": {"order_by": order, **nulls}}
    return {camel(window.func): framed if window.func in windows.FRAMED else {"order_by": order}}


def _window_frame(frame: windows.Frame | None) -> dict[str, Any]:
    def bound(at: int | None, side: str) -> Any:
        if at is None:
            return f"Unbounded{side}"
        if at == 0:
            return "CurrentRow"
        return {"OffsetPreceding" if at < 0 else "OffsetFollowing": abs(at)}

    if frame is None:
        frame = windows.Frame(None, 0, "range")
    start, end = bound(frame.start, "Preceding"), bound(frame.end, "Following")
    return {"units": camel(frame.units), "start_bound": start, "end_bound": end}


def table_func(key: str, output: RelationType) -> Any:
    """A table function."""
    if key == WRAP:
        types = [column_type(column) for column in output.columns]
        return {"Wrap": {"types": types, "width": output.arity}}
    func = functions.table_func(key)
    match func.name:
        case "unnest":
            element = func.args[0]
            return {f"Unnest{camel(element.kind)}": {"el_typ": scalar_type(output.columns[0].type)}}
        case "generate_series":
            return f"GenerateSeries{in_function(func.args[0])}"
        case _:
            return camel(func.name)
