"""SQL types and the shapes of relations.

Promise: a `SqlType` says everything about a value that any engine needs (scale and length included), compares and hashes by value,
and prints as PostgreSQL spells it. Nullability lives beside it in a `ColumnType`, unique keys in a `RelationType`. One struct with
a kind, instead of a class for each type: every consumer switches over kinds anyway, and new kinds do not ripple.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pyarrow as pa

#: The scale a `numeric` without a declared one carries: room for 20 digits before the point in decimal(38, 18).
DEFAULT_NUMERIC_SCALE = 18
#: The precision every numeric is carried in, in Spark, DuckDB and Arrow alike.
NUMERIC_PRECISION = 38


class SqlType(
    msgspec.Struct, frozen=True, tag=False, omit_defaults=True, cache_hash=True, gc=False
):
    """A SQL type.

    Attributes:
        kind: the type's internal name: boolean, smallint, integer, bigint, uint2, uint4, uint8, oid, regclass, regproc, regtype,
            real, double, numeric, text, varchar, char, bytea, date, time, timestamp, timestamptz, interval, uuid, jsonb,
            mz_timestamp, list, array, record, map, range, unknown (the type of an untyped NULL or string literal before coercion).
        scale: digits behind the point of a numeric, 39 at most; None is `DEFAULT_NUMERIC_SCALE`, undeclared.
        length: the declared maximum of varchar or char, in characters, or the digits of a timestamp's seconds; None is unbounded. A text
            of 63 is a `name`, one of 1 PostgreSQL's ``"char"``: both are texts that a cast cuts. Below zero it stands for a form that
            a cast reads: ``aclitem``, ``mz_aclitem``, ``int2vector``, ``oidvector``.
        element: the element's type of a list, array, map or range.
        fields: names and types of a record's fields.
        custom_id: of a list, map or record that has a name of a user's: the id of that. Values are those of the type without it.
    """

    kind: str
    scale: int | None = None
    length: int | None = None
    element: SqlType | None = None
    fields: tuple[tuple[str, ColumnType], ...] = ()
    custom_id: str | None = None

    @property
    def effective_scale(self) -> int:
        """The scale that a numeric is carried with."""
        # A scale of 39, which only constants have, is carried with the 38 digits that there are.
        return DEFAULT_NUMERIC_SCALE if self.scale is None else min(self.scale, NUMERIC_PRECISION)

    def __str__(self) -> str:
        return type_name(self)


class ColumnType(msgspec.Struct, frozen=True, cache_hash=True, gc=False):
    """A type and whether NULL may occur."""

    type: SqlType
    nullable: bool = True

    def __str__(self) -> str:
        return f"{self.type}{'?' if self.nullable else ''}"


class RelationType(msgspec.Struct, frozen=True, cache_hash=True, gc=False):
    """The columns of a relation and its unique keys (sets of 0-based column positions, each sorted)."""

    columns: tuple[ColumnType, ...]
    keys: tuple[tuple[int, ...], ...] = ()

    @property
    def arity(self) -> int:
        """The number of columns."""
        return len(self.columns)


class RelationDesc(msgspec.Struct, frozen=True, cache_hash=True, gc=False):
    """A relation's type with its columns' names."""

    names: tuple[str, ...]
    typ: RelationType

    def __post_init__(self) -> None:
        if len(self.names) != len(self.typ.columns):
            msg = f"{len(self.names)} names for {len(self.typ.columns)} columns"
            raise ValueError(msg)

    @property
    def arity(self) -> int:
        """The number of columns."""
        return len(self.names)


def levels(typ: SqlType) -> int:
    """How many types there are inside each other: 1 for one that is made of none."""
    parts = [column.type for _, column in typ.fields]
    if typ.element is not None:
        parts.append(typ.element)
    return 1 + max(map(levels, parts), default=0)


def unnamed(typ: SqlType) -> SqlType:
    """A type without the names that users have given it and what it is made of."""
    if typ.element is None and not typ.fields:
        return typ
    fields = tuple(
        (name, ColumnType(unnamed(column.type), column.nullable)) for name, column in typ.fields
    )
    element = None if typ.element is None else unnamed(typ.element)
    return msgspec.structs.replace(typ, element=element, fields=fields, custom_id=None)


BOOLEAN = SqlType("boolean")
SMALLINT = SqlType("smallint")
INTEGER = SqlType("integer")
BIGINT = SqlType("bigint")
UINT2 = SqlType("uint2")
UINT4 = SqlType("uint4")
UINT8 = SqlType("uint8")
#: The numbers of objects of the catalog, and those that are written as a name.
OID = SqlType("oid")
REGCLASS = SqlType("regclass")
REGPROC = SqlType("regproc")
REGTYPE = SqlType("regtype")
REGISTERED = frozenset({"regclass", "regproc", "regtype"})
REAL = SqlType("real")
DOUBLE = SqlType("double")
NUMERIC = SqlType("numeric")
TEXT = SqlType("text")
#: PostgreSQL's types of names, of at most 63 bytes, and of one byte: texts with another number.
NAME = SqlType("text", length=63)
PG_CHAR = SqlType("text", length=1)
#: Who was granted what by whom, of numbers and of ids of roles; numbers with blanks between them. Texts in one form.
ACLITEM = SqlType("text", length=-1)
MZ_ACLITEM = SqlType("text", length=-2)
INT2VECTOR = SqlType("text", length=-3)
OIDVECTOR = SqlType("text", length=-4)
#: The types of the numbers that stand in a vector; they count from 0.
VECTOR_ELEMENTS = {INT2VECTOR: SMALLINT, OIDVECTOR: OID}
_SHORT_TEXTS = {
    NAME: "name",
    PG_CHAR: '"char"',
    ACLITEM: "aclitem",
    MZ_ACLITEM: "mz_aclitem",
    INT2VECTOR: "int2vector",
    OIDVECTOR: "oidvector",
}
VARCHAR = SqlType("varchar")
CHAR = SqlType("char")
BYTEA = SqlType("bytea")
DATE = SqlType("date")
TIME = SqlType("time")
TIMESTAMP = SqlType("timestamp")
TIMESTAMPTZ = SqlType("timestamptz")
INTERVAL = SqlType("interval")
UUID = SqlType("uuid")
JSONB = SqlType("jsonb")
MZ_TIMESTAMP = SqlType("mz_timestamp")
UNKNOWN = SqlType("unknown")

#: The range types by name. A range of numerics holds them with the digits of an undeclared scale.
RANGES: dict[str, SqlType] = {
    "int4range": SqlType("range", element=INTEGER),
    "int8range": SqlType("range", element=BIGINT),
    "numrange": SqlType("range", element=NUMERIC),
    "daterange": SqlType("range", element=DATE),
    "tsrange": SqlType("range", element=TIMESTAMP),
    "tstzrange": SqlType("range", element=TIMESTAMPTZ),
}
_RANGE_NAMES = {typ.element.kind: name for name, typ in RANGES.items() if typ.element is not None}

#: How PostgreSQL and Materialize print a type (`\d`, error messages, `types=` of EXPLAIN).
_NAMES = {
    "double": "double precision",
    "varchar": "character varying",
    "char": "character",
    "timestamp": "timestamp without time zone",
    "timestamptz": "timestamp with time zone",
}


def type_name(typ: SqlType) -> str:
    """The type as PostgreSQL prints it, with its modifiers: ``numeric(38,2)`` is ``numeric`` with a scale of 2."""
    base = _NAMES.get(typ.kind, typ.kind)
    if typ.kind == "numeric" and typ.scale is not None:
        return f"numeric({NUMERIC_PRECISION},{typ.scale})"
    if typ.kind == "text":
        return _SHORT_TEXTS.get(typ, "text")
    if typ.length is not None and typ.kind in ("timestamp", "timestamptz"):
        return base.replace("timestamp", f"timestamp({typ.length})")
    if typ.length is not None:
        return f"{base}({typ.length})"
    if typ.kind == "list" and typ.element is not None:
        return f"{type_name(typ.element)} list"
    if typ.kind == "array" and typ.element is not None:
        # An array's dimensions are no part of its type's name.
        shown = type_name(typ.element)
        return shown if typ.element.kind == "array" else f"{shown}[]"
    if typ.kind == "map" and typ.element is not None:
        return f"map[text=>{type_name(typ.element)}]"
    if typ.kind == "range" and typ.element is not None:
        return _RANGE_NAMES.get(typ.element.kind, f"range of {type_name(typ.element)}")
    if typ.kind == "record":
        inner = ",".join(f"{name}: {column}" for name, column in typ.fields)
        return f"record({inner})"
    return base


_ARROW: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "smallint": pa.int16(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    # Spark has no unsigned integers: each travels in the next wider signed type, uint8 as an exact decimal.
    "uint2": pa.int32(),
    "uint4": pa.int64(),
    **dict.fromkeys(("oid", "regclass", "regproc", "regtype"), pa.int64()),
    "uint8": pa.decimal128(20, 0),
    "real": pa.float32(),
    "double": pa.float64(),
    "text": pa.string(),
    "varchar": pa.string(),
    "char": pa.string(),
    "bytea": pa.binary(),
    "date": pa.date32(),
    # Spark 4 has no general TIME column in Parquet readers of every version: microseconds since midnight.
    "time": pa.int64(),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", tz="UTC"),
    # months, days and microseconds are three numbers; one struct keeps them exact in every engine.
    "interval": pa.struct(
        [
            # nullable as every field: engines hand a NULL interval out as a struct of NULLs
            pa.field("months", pa.int32()),
            pa.field("days", pa.int32()),
            pa.field("micros", pa.int64()),
        ]
    ),
    "uuid": pa.string(),
    "jsonb": pa.string(),
    "mz_timestamp": pa.int64(),
    "unknown": pa.string(),
}


def range_fields(typ: SqlType) -> tuple[tuple[str, SqlType], ...]:
    """The fields that carry a range, in an order by which engines compare ranges as PostgreSQL does.

    Ranks come first: of the lower end 0 (empty), 1 (unbounded) or 2; of the upper end 0 (empty), 1 or 2 (unbounded). So a missing
    bound only ever meets a missing one. An exclusive lower bound is the greater one, an inclusive upper bound is. What says
    nothing (the flag of a missing bound) is false, so that equal ranges are equal field by field.
    """
    element = typ.element
    assert element is not None
    return (
        ("lower_rank", INTEGER),
        ("lower", element),
        ("lower_exclusive", BOOLEAN),
        ("upper_rank", INTEGER),
        ("upper", element),
        ("upper_inclusive", BOOLEAN),
    )


def arrow_type(typ: SqlType) -> pa.DataType:
    """The Arrow type in which a value travels between engines and lies in Parquet."""
    if typ.kind == "numeric":
        return pa.decimal128(NUMERIC_PRECISION, typ.effective_scale)
    if typ.kind in ("list", "array"):
        assert typ.element is not None
        return pa.list_(arrow_type(typ.element))
    if typ.kind == "map":
        assert typ.element is not None
        return pa.map_(pa.string(), arrow_type(typ.element))
    if typ.kind == "range":
        return pa.struct([pa.field(n, arrow_type(column)) for n, column in range_fields(typ)])
    if typ.kind == "record":
        # Nullable as every field: of a NULL record all fields are.
        return pa.struct(
            [
                pa.field(f"f{i}", arrow_type(column.type))
                for i, (_, column) in enumerate(typ.fields, start=1)
            ]
        )
    return _ARROW[typ.kind]


def updates_schema(columns: Sequence[ColumnType], *, errors: bool = True) -> pa.Schema:
    """As `arrow_schema`, of rows that errors may stand among: these are in a column ``mz_error``, before mz_time and mz_diff."""
    schema = arrow_schema(columns)
    return schema.append(pa.field("mz_error", pa.string())) if errors else schema


def arrow_schema(columns: Sequence[ColumnType], names: Sequence[str] | None = None) -> pa.Schema:
    """The Arrow schema of rows of these columns; without names they are ``c0``, ``c1``, … as inside dataflows."""
    given = [f"c{i}" for i in range(len(columns))] if names is None else list(names)
    # Every field is nullable in Arrow: Parquet written by several engines then agrees, and NOT NULL is checked on write.
    return pa.schema(
        [
            pa.field(name, arrow_type(column.type))
            for name, column in zip(given, columns, strict=True)
        ]
    )
