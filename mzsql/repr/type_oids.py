"""The numbers of types: PostgreSQL's own where it has the type, Materialize's for the others.

Promise: a number means one type for good; `type_of_oid` finds it again. Arrays have numbers of their own, lists and maps share one.
"""

from __future__ import annotations

from collections.abc import Mapping

from mzsql.repr import types as t
from mzsql.repr.types import RANGES, SqlType

TYPE_OIDS: Mapping[str, int] = {
    "boolean": 16,
    "bytea": 17,
    "bigint": 20,
    "smallint": 21,
    "integer": 23,
    "regproc": 24,
    "text": 25,
    "oid": 26,
    "real": 700,
    "double": 701,
    "char": 1042,
    "varchar": 1043,
    "date": 1082,
    "time": 1083,
    "timestamp": 1114,
    "timestamptz": 1184,
    "interval": 1186,
    "numeric": 1700,
    "regclass": 2205,
    "regtype": 2206,
    "record": 2249,
    "array": 2277,
    "uuid": 2950,
    "jsonb": 3802,
    "list": 16384,
    "map": 16455,
    "uint2": 16460,
    "uint4": 16462,
    "uint8": 16464,
    "mz_timestamp": 16552,
}
#: Of the array of each kind.
ARRAY_OIDS: Mapping[str, int] = {
    "boolean": 1000,
    "bytea": 1001,
    "smallint": 1005,
    "integer": 1007,
    "regproc": 1008,
    "text": 1009,
    "char": 1014,
    "varchar": 1015,
    "bigint": 1016,
    "real": 1021,
    "double": 1022,
    "oid": 1028,
    "timestamp": 1115,
    "date": 1182,
    "time": 1183,
    "timestamptz": 1185,
    "interval": 1187,
    "numeric": 1231,
    "regclass": 2210,
    "regtype": 2211,
    "record": 2287,
    "uuid": 2951,
    "jsonb": 3807,
    "uint2": 16461,
    "uint4": 16463,
    "uint8": 16465,
    "mz_timestamp": 16553,
}
#: Of the texts that are cut, or in one form, and of their arrays.
SHORT_TEXT_OIDS: Mapping[SqlType, tuple[int, int]] = {
    t.PG_CHAR: (18, 1002),
    t.NAME: (19, 1003),
    t.INT2VECTOR: (22, 1006),
    t.OIDVECTOR: (30, 1013),
    t.ACLITEM: (1033, 1034),
    t.MZ_ACLITEM: (16566, 16567),
}
RANGE_OIDS: Mapping[str, int] = {
    "int4range": 3904,
    "numrange": 3906,
    "tsrange": 3908,
    "tstzrange": 3910,
    "daterange": 3912,
    "int8range": 3926,
}
#: Of what stands for many types where functions are declared.
PSEUDO_OIDS: Mapping[str, int] = {"any": 2276, "anyelement": 2283, "anyrange": 3831}
#: Of what has no number: an unknown type.
_UNKNOWN = 705
#: The kinds that stand for many types.
_FAMILIES = frozenset({"array", "list", "map", "record"})


def type_oid(typ: SqlType) -> int:
    """The number of a type."""
    if typ.kind == "array":
        inner = typ.element
        while inner is not None and inner.kind == "array":
            inner = inner.element
        if inner is not None and inner in SHORT_TEXT_OIDS:
            return SHORT_TEXT_OIDS[inner][1]
        return TYPE_OIDS["array"] if inner is None else ARRAY_OIDS.get(inner.kind, 2277)
    if typ in SHORT_TEXT_OIDS:
        return SHORT_TEXT_OIDS[typ][0]
    if typ.kind == "range":
        return RANGE_OIDS.get(t.type_name(typ), PSEUDO_OIDS["anyrange"])
    return TYPE_OIDS.get(typ.kind) or PSEUDO_OIDS.get(typ.kind, _UNKNOWN)


def types_by_oid() -> dict[int, SqlType]:
    """Every type that has a number of its own."""
    plain = {number: SqlType(kind) for kind, number in TYPE_OIDS.items() if kind not in _FAMILIES}
    arrays = {
        number: SqlType("array", element=SqlType(kind)) for kind, number in ARRAY_OIDS.items()
    }
    ranges = {number: RANGES[name] for name, number in RANGE_OIDS.items()}
    short = {number: typ for typ, (number, _) in SHORT_TEXT_OIDS.items()}
    of_short = {n: SqlType("array", element=typ) for typ, (_, n) in SHORT_TEXT_OIDS.items()}
    return {**plain, **arrays, **ranges, **short, **of_short}
