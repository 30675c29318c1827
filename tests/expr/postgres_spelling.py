"""How PostgreSQL spells the functions of the table, for comparison. No knowledge of ours goes in but names."""

from __future__ import annotations

from mzsql.expr.functions.table import ScalarFunc
from mzsql.expr.scalar import Literal
from mzsql.repr.datum import Datum
from mzsql.repr.types import SqlType
from mzsql.repr.values import datum_text

TYPES = {
    "boolean": "boolean", "smallint": "smallint", "integer": "integer", "bigint": "bigint", "real": "real", "double": "double precision",
    "numeric": "numeric", "text": "text", "varchar": "varchar", "char": "bpchar", "bytea": "bytea", "date": "date", "time": "time",
    "timestamp": "timestamp", "timestamptz": "timestamptz", "interval": "interval", "uuid": "uuid", "jsonb": "jsonb",
}  # fmt: skip

_FORMS = {
    "and": "({0} AND {1} AND {2})", "or": "({0} OR {1} OR {2})", "not": "(NOT {0})", "is_null": "({0} IS NULL)", "is_true": "({0} IS TRUE)",
    "is_false": "({0} IS FALSE)", "position": "position({0} in {1})",
    "position_bytea": "position({0} in {1})", "like": "({0} LIKE {1})", "ilike": "({0} ILIKE {1})",
}  # fmt: skip


def type_text(typ: SqlType) -> str:
    if typ.kind == "numeric" and typ.scale is not None:
        return f"numeric(38,{typ.scale})"
    if typ.length is not None:
        return f"{'varchar' if typ.kind == 'varchar' else 'char'}({typ.length})"
    return TYPES[typ.kind]


def literal(value: Datum, typ: SqlType) -> str:
    if value is None:
        return f"NULL::{type_text(typ)}"
    text = (
        str(value)
        if typ.kind in ("text", "varchar", "char", "jsonb", "uuid")
        else datum_text(value, typ)
    )
    if typ.kind in ("real", "double"):
        text = repr(float(str(value))).replace("inf", "Infinity")
    escaped = text.replace("'", "''")
    return f"'{escaped}'::{type_text(typ)}"


def spelled(func: ScalarFunc, args: list[str], result: SqlType) -> str | None:
    """The call as PostgreSQL writes it; None where it has no such function."""
    if func.key in _FORMS:
        return _FORMS[func.key].format(*args)
    if func.name == "cast":
        return None if result.kind not in TYPES else f"({args[0]})::{type_text(result)}"
    for prefix in ("extract_", "date_part_", "date_trunc_"):
        if func.name.startswith(prefix):
            unit = func.name.removeprefix(prefix)
            if prefix == "extract_":
                return f"extract({unit} from {args[0]})"
            zone = ", 'UTC'" if func.key.endswith("_tstz") and prefix == "date_trunc_" else ""
            return f"{prefix[:-1]}('{unit}', {args[0]}{zone})"
    if func.name == "make_timestamp":
        # PostgreSQL's fields are integers.
        return f"make_timestamp({', '.join(f'{arg}::integer' for arg in args[:5])}, {args[5]})"
    if not func.name[0].isalpha():
        return (
            f"({func.name} {args[0]})" if len(args) == 1 else f"({args[0]} {func.name} {args[1]})"
        )
    return f"{func.name}({', '.join(args)})"


def constants(values: list[Datum], types: list[SqlType]) -> list[Literal]:
    return [Literal(value, typ) for value, typ in zip(values, types, strict=True)]
