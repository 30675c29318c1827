"""The functions for which each engine's own spelling gives the same bits.

Promise: a function not listed here has one definition, the in-process evaluator's, and runs on Spark as an Arrow UDF
over it (`mzsql.expr.evaluator_functions`). The reason: a value used as a key or stored may be computed by one engine in a lookup
and by another in a step, and a retraction must match its insertion. So a new function is safe from its declaration on;
list it once the differential test (`tests/expr/test_expr_functions_spark.py`) finds the engines equal over awkward
values, and where its speed on Spark matters. Not listed are functions that libraries compute (roots, logarithms,
sines), upper and lower case, zones and formats, parsing and float output, `jsonb` and containers.
"""

from __future__ import annotations

from collections.abc import Sequence

from mzsql.repr.types import SqlType

_INTEGERS = ("smallint", "integer", "bigint", "uint2", "uint4", "uint8")
_FLOATS = ("real", "double")
_OIDS = ("oid", "regclass", "regproc", "regtype")
_MOMENTS = ("date", "timestamp", "timestamptz")
_PLAIN = frozenset(
    {
        *("boolean", "numeric", "text", "varchar", "char", "bytea", "uuid", "time"),
        *(*_INTEGERS, *_OIDS, *_MOMENTS, "mz_timestamp"),
    }
)

#: Functions of any type that pass their arguments on unchanged.
_ANYTHING = frozenset({"is_null", "coalesce", "row", "record_get", "mz_raise_if", "error_if_null"})
#: The same, for types with one representation per value: between 0 and -0 the engines choose differently.
_ONE_OF_ARGUMENTS = frozenset({"greatest", "least"})


def _comparisons() -> set[str]:
    kinds = (*_PLAIN, *_FLOATS, "interval")
    ordered = {
        f"{op}_{kind}" for op in ("eq", "not_eq", "lt", "lte", "gt", "gte") for kind in kinds
    }
    return {*ordered, "eq_jsonb", "not_eq_jsonb", "and", "or", "not", "is_true", "is_false"}


def _arithmetic() -> set[str]:
    exact = (*_INTEGERS, "numeric")
    operators = ("add", "sub", "mul", "div", "mod", "mod_function", "neg", "abs")
    found = {f"{op}_{kind}" for op in operators for kind in exact}
    # IEEE 754 defines these to the last bit.
    found |= {f"{op}_{kind}" for op in ("add", "sub", "mul", "div") for kind in _FLOATS}
    found |= {
        f"bit_{op}_{kind}"
        for op in ("and", "or", "xor", "not", "shift_left", "shift_right")
        for kind in _INTEGERS
    }
    rounded = {"round_numeric", "trunc_numeric", "ceil_numeric", "floor_numeric"}
    return (
        found
        | rounded
        | {"ceiling_numeric", "sqrt_double", "numeric_widened"}
        | {f"unsigned_zero_{kind}" for kind in _FLOATS}
    )


def _casts() -> set[str]:
    exact = (*_INTEGERS, "numeric", "mz_timestamp", *_OIDS)
    found = {f"{a}_to_{b}" for a in exact for b in exact}
    found |= {f"{a}_to_{b}" for a in _MOMENTS for b in _MOMENTS}
    signed = ("smallint", "integer", "bigint", "uint2", "uint4")
    found |= {f"{kind}_to_double" for kind in (*signed, "numeric", "real")}
    found |= {f"{kind}_to_boolean" for kind in signed} | {f"boolean_to_{kind}" for kind in signed}
    texts = ("text", "varchar", "char")
    found |= {f"{a}_to_{b}" for a in texts for b in texts}
    found |= {f"{a}_to_{b}_checked" for a in texts for b in texts}
    return found | {f"{kind}_to_text" for kind in (*_INTEGERS, "boolean", "numeric")}


def _texts() -> set[str]:
    lengths = {"char_length", "char_length_length", "char_length_character_length"}
    lengths |= {"octet_length", "octet_length_char", "octet_length_bytea", "length_bytea"}
    parts = {"substr_from", "substr_from_for", "substr_short_from", "substr_short_from_for"}
    return (
        lengths | parts | {"concat_text", "starts_with", "position", "strpos", "like", "like_char"}
    )


def _moments() -> set[str]:
    units = (
        *("microseconds", "milliseconds", "second", "minute", "hour", "day", "dow", "isodow"),
        *("doy", "week", "month", "quarter", "year", "decade", "century", "millennium", "epoch"),
    )
    kinds = ("d", "ts", "tstz")
    found = {
        f"{f}_{u}_{k}" for f in ("extract", "date_part", "date_trunc") for u in units for k in kinds
    }
    for kind in _MOMENTS:
        found |= {f"add_{kind}_interval", f"add_interval_{kind}", f"sub_{kind}_interval"}
        found |= {f"sub_{kind}"}
    return found | {"add_date_integer", "add_integer_date", "sub_date_integer", "add_interval"}


PORTABLE: frozenset[str] = frozenset(
    {*_comparisons(), *_arithmetic(), *_casts(), *_texts(), *_moments()}
)


#: Table functions of numbers and times, and those that only unnest a container.
PORTABLE_TABLES: frozenset[str] = frozenset(
    {
        *("generate_series_integer", "generate_series_integer_step"),
        *("generate_series_bigint", "generate_series_bigint_step"),
        *("unnest_array", "unnest_list", "unnest_map", "generate_subscripts", "_pg_expandarray"),
    }
)


def is_portable(key: str, args: Sequence[SqlType]) -> bool:
    """Whether all engines compute the function to the same bits for arguments of these types."""
    if key in PORTABLE or key in _ANYTHING or key.startswith("record_get"):
        return True
    return key in _ONE_OF_ARGUMENTS and all(arg.kind in _PLAIN for arg in args)
