"""Values for every type, and each function as an expression over a table that has them: shared by the differential tests."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from mzsql.expr import functions
from mzsql.expr.evaluate import EvalError
from mzsql.expr.functions.comparison import ANY
from mzsql.expr.functions.table import ScalarFunc
from mzsql.expr.scalar import Call, Column, scalar_type
from mzsql.repr.datum import Datum
from mzsql.repr.types import RANGES, ColumnType, SqlType

INF = float("inf")
NAN = float("nan")

_DOUBLES = [
    0.0, -0.0, 1.0, -1.0, 1.5, -2.5, 0.5, 2.5, 3.5, 0.1, 1e15, 123456789012345.6, 1e-7, -1e-5, 123456.789, 1e22, 2.0**53, 1e300,
    1.7976931348623157e308, 5e-324, 0.0001, 2e23, 9.5, 100.0, NAN, INF, -INF,
]  # fmt: skip
_REALS = [
    0.0,
    -0.0,
    1.0,
    1.5,
    -2.5,
    0.5,
    1e6,
    123456.0,
    1e-5,
    0.0001,
    16777216.0,
    3.4028234663852886e38,
    2.5,
    NAN,
    INF,
    -INF,
]
_TEXTS = [
    "", "a", "abc", "abcabc", "héllo wörld", "  pad  ", "a,b,,c", "xxaxx", "12", "-5", " 7 ", "+3", "99999999999", "9223372036854775808",
    "-32769", "70000", "1.5", "-0.005", "1e3", "1e400", "1e-400", "12345678901234567890123.5", ".5", "5.", "1e", "NaN", "-inf", "Infinity",
    "true", "F", "yes", "of", "0", "1", "maybe", "2020-02-29", "2021-02-29", "1999-1-5", "2020-01-01 12:34:56",
    "2020-01-01T23:59:59.9999999",
    "2020-01-01 00:00:00+05:30", "2020-01-01 24:00:00", "2020-13-01", "12:34", "23:59:59.5", "25:00", "1 day", "1 year -2 mons +03:00:00",
    "3 days 04:05:06.7", "fortnight", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "{A0EEBC999C0B4EF8BB6D6BB9BD380A11}", "\\xdeadBEEF", "\\xabc",
    "back\\slash", "100%", "a_c", "🦆x", "ÄÖ", "line\nbreak", "'quote'",
]  # fmt: skip
_PATTERNS = [
    "",
    "%",
    "a%",
    "%c",
    "_b_",
    "a\\_c",
    "100\\%",
    "%ö%",
    "abc",
    "%\\\\%",
    "h\\éllo%",
    "dangling\\",
    "A%",
    ",",
    "x",
    "abc ",
    "%\n%",
    "b",
    "-",
]
_DAY = 86_400_000_000
_DATES = [
    0,
    -1,
    18321,
    11016,
    18993,
    -719162,
    2932896,
    -1000000,
    -719529,
    19782,
    18262,
    59,
    -25567,
    3_000_000,
]
_STAMPS = [
    0,
    -1,
    1,
    1582979696123456,
    946684799999999,
    -62135596800000000,
    253402300799999999,
    18262 * _DAY,
    -1000000 * _DAY + 5,
    1600000000500000,
]
_INTERVALS = [
    "0 0 0", "1 0 0", "-14 3 -1", "0 1 3600000000", "12 30 86400000000", "0 -1 0", "0 0 -1500000", "25 -40 90061000001",
    "2147483647 0 0", "0 2147483647 0",
"-1 0 7200000000", "0 400 0", "13 0 0",
]  # fmt: skip

POOLS: dict[str, list[Datum]] = {
    "boolean": [True, False],
    "smallint": [0, 1, -1, 7, 32767, -32768, 2, 100],
    "integer": [0, 1, -1, 2, 3, -7, 10, 5, 2147483647, -2147483648, 40, -3],
    "bigint": [0, 1, -1, 7, 9223372036854775807, -9223372036854775808, 4294967296, -13, 10**15],
    "uint2": [0, 1, 7, 65535, 255],
    "uint4": [0, 1, 7, 4294967295, 65536],
    "uint8": [0, 1, 7, 18446744073709551615, 10**19, 3],
    **{kind: [0, 1, 23, 4294967295, 2**31] for kind in ("oid", "regclass", "regproc", "regtype")},
    "real": list(_REALS),
    "double": list(_DOUBLES),
    "text": list(_TEXTS),
    "bytea": ["", "00", "deadbeef", "61"],
    "date": list(_DATES),
    "time": [0, 1, 43200000000, 86399999999, 3661000001],
    "timestamp": list(_STAMPS),
    "timestamptz": list(_STAMPS),
    "interval": list(_INTERVALS),
    "uuid": ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "00000000-0000-0000-0000-000000000000"],
    "jsonb": ['{"a": 1}', "null", "[1, 2]"],
    "mz_timestamp": [0, 1, 1600000000123, 2**63 - 2],
}  # fmt: skip

_SMALL = [
    "0.00",
    "1.00",
    "-1.00",
    "2.50",
    "-2.50",
    "0.01",
    "123.45",
    "-7.00",
    "999999999999999.99",
    "99999999999999999999999999999999999.99",
    "-99999999999999999999999999999999999.99",
    "0.50",
]
_FINE = ["0.000000000000000000", "1.500000000000000000", "-2.500000000000000000", "0.000000000000000001",
         "12345678901234567890.123456789012345678",
         "-99999999999999999999.999999999999999999", "3.000000000000000000", "7.125000000000000000", "-0.333333333333333333"]  # fmt: skip
#: The columns of a kind, each with its type: the i-th argument of that kind reads the i-th.
COLUMNS: dict[str, list[tuple[SqlType, list[Datum]]]] = {
    **{kind: [(SqlType(kind), pool)] * 2 for kind, pool in POOLS.items()},
    "numeric": [
        (SqlType("numeric", scale=2), list(_SMALL)),
        (SqlType("numeric"), list(_FINE)),
    ],
    "text": [(SqlType("text"), _TEXTS), (SqlType("text"), _PATTERNS), (SqlType("text"), ["", "x", "-", "ab"])],
    "integer": [(SqlType("integer"), POOLS["integer"])] * 3,
    "boolean": [(SqlType("boolean"), POOLS["boolean"])] * 3,
    "varchar": [(SqlType("varchar", length=12), [t[:12] for t in _TEXTS])] * 2,
    "char": [(SqlType("char", length=3), ["a  ", "abc", "12 ", "   "])] * 2,
    "timestamp": [(SqlType("timestamp"), _STAMPS)] * 2,
    "bigint": [(SqlType("bigint"), [*POOLS["bigint"], 2020, 12, 29, 23, 59])] * 5,
    "any": [(SqlType("integer"), POOLS["integer"])] * 3,
}  # fmt: skip


#: What engines are known to see differently: letters whose case changes their number, marks, letters beyond 16 bits; the least and the
#: greatest; the hours of a zone that come twice or never, times of before there were zones.
AWKWARD: dict[str, list[Datum]] = {
    "text": [
        "Straße", "İI",
        "ıI", "ﬁn ǰ ŉ", "ΑΣ Σς", "e\u0301x", "\u0130\u0307", "𝒳y", "\U0001f469\u200d\U0001f469\u200d\U0001f467 z", "\U0010ffff",
        "\ufeffb", "\u00a0 p\u2003", "\u200d", "ǆ Ǆ ǅ", "ß%", "٣",
        "１２", "\u1e9e",
        "\t 7\n", "1e-7", "0x1F", "1_000", "-0", "-0.0", "2024-10-27 02:30:00+01", "0044-03-15 BC", "infinity", "P1Y2M", "1 mon", "30 days",
    ],
    "double": [-0.0, 5e-324, 2.2250738585072014e-308, -1.7976931348623157e308, 0.1 + 0.2, 1e16, 9007199254740993.0, 0.7,
        33.3, 710.0, -745.2],
    "real": [-0.0, 1.401298464324817e-45, 1.1754943508222875e-38, 0.10000000149011612],
    "interval": ["0 30 0", "1 0 0", "0 0 2592000000000", "-1 30 0", "0 1 -86400000000", "-2147483648 0 0", "0 0 9223372036854775807"],
    "timestamp": [
        1729996200000000, 1729992600000000, 1711852200000000, -2208990000000000, -62135596800000001, -210866803200000000, 4102444799999999,
    ],
    "date": [-2440588, 2932897, 19656, 20023],
}  # fmt: skip
AWKWARD["timestamptz"] = AWKWARD["timestamp"]
AWKWARD["varchar"] = [str(text)[:12] for text in AWKWARD["text"]]


@dataclass(frozen=True)
class Case:
    """A function applied to columns of the table."""

    func: ScalarFunc
    expr: Call
    columns: tuple[int, ...]


@dataclass(frozen=True)
class Cases:
    """The table of values, and every function over it."""

    columns: tuple[ColumnType, ...]
    rows: tuple[tuple[Datum, ...], ...]
    cases: tuple[Case, ...]


#: Other names of functions that are compared under their first one, and readings that texts share with varchar and char.
_ALIASES = ("mod_function_", "substr_short", "ceiling_", "pow_", "log_numeric", "log_double")


def is_alias(key: str) -> bool:
    reading = key.startswith(("varchar_to_", "char_to_")) and not key.endswith(
        ("text", "varchar", "char", "checked")
    )
    return reading or key.startswith(_ALIASES)


#: Functions some of whose arguments have to be constants: compared by statements of their own.
_CONSTANTS = frozenset({
    "~", "~*", "!~", "!~*", "normalize", "regexp_match", "regexp_replace", "regexp_split_to_array", "to_char", "timezone", "digest",
    "hmac", "crc32", "sha224", "sha384",
    "sha512", "seahash", "kafka_murmur2", "regexp_count", "regexp_instr", "regexp_substr", "to_number",
})  # fmt: skip


def takes_constants(func: ScalarFunc) -> bool:
    shown = func.name == "to_char"
    constants = func.name in _CONSTANTS and (shown or func.args[0].kind != "interval")
    return constants or func.key == "length_encoded"


def takes_containers(func: ScalarFunc) -> bool:
    """Functions of arrays, lists, maps and records have values, and comparisons, of their own."""
    given = (*func.args, *(() if func.variadic is None else (func.variadic,)))
    kinds = ("array", "list", "map", "record", "range", "anyelement")
    if func.name in (*kinds, "jsonb_build_object") or (
        func.name == "cast" and not set(kinds).isdisjoint(func.key.split("_to_"))
    ):
        return True
    return any(arg.kind in kinds for arg in given) or func.name in RANGES


def identical(left: object, right: object) -> bool:
    """Equality of answers to the bit: 0 is not -0."""
    zeros = isinstance(left, float) and isinstance(right, float) and left == right == 0
    return same(left, right) and not (zeros and math.copysign(1, left) != math.copysign(1, right))  # type: ignore[arg-type]


def same(left: object, right: object, *, exact: bool = True) -> bool:
    """Equality of answers: NaN equals NaN, and where libraries differ by a last digit, nearness."""
    if isinstance(left, float) and isinstance(right, float):
        if math.isnan(left) or math.isnan(right):
            return math.isnan(left) and math.isnan(right)
        return left == right or (
            not exact and math.isclose(left, right, rel_tol=1e-14, abs_tol=1e-300)
        )
    if isinstance(left, EvalError) or isinstance(right, EvalError) or exact:
        return left == right
    if isinstance(left, str) and isinstance(right, str):
        return math.isclose(float(left), float(right), rel_tol=1e-13)
    return left == right


def build(size: int = 90, seed: int = 7, more: dict[str, list[Datum]] | None = None) -> Cases:
    """Rows that pair the values of the pools (and `more`) at random, NULLs among them; every value of a pool occurs."""
    rng = random.Random(seed)
    place: dict[tuple[str, int], int] = {}
    types: list[ColumnType] = []
    columns: list[list[Datum]] = []
    for kind, many in COLUMNS.items():
        for number, (typ, pool) in enumerate(many):
            place[kind, number] = len(types)
            types.append(ColumnType(typ))
            further = [] if more is None or (number and kind == "text") else more.get(kind, [])
            values: list[Datum] = [None, None, *pool, *further]
            while len(values) < size:
                values.append(rng.choice([*pool, *further]))
            rng.shuffle(values)
            columns.append(values[:size])
    cases = [
        made
        for func in functions.all_scalars()
        if not takes_constants(func)
        and not takes_containers(func)
        and (made := _case(func, place, types))
    ]
    return Cases(tuple(types), tuple(zip(*columns, strict=True)), tuple(cases))


def _case(
    func: ScalarFunc, place: dict[tuple[str, int], int], types: list[ColumnType]
) -> Case | None:
    args = list(func.args)
    if func.variadic is not None:
        args += [func.variadic] * (3 - len(args))
    seen: dict[str, int] = {}
    found = []
    for arg in args:
        kind = "any" if arg == ANY else arg.kind
        number = seen.get(kind, 0)
        seen[kind] = number + 1
        found.append(place[kind, number])
    given = tuple(Column(i) for i in found)
    result = func.result_type([scalar_type(arg, types) for arg in given])
    if func.name == "cast":
        result = _target(func.key, result)
    return Case(func, Call(func.key, given, result), tuple(found))


def _target(key: str, typ: SqlType) -> SqlType:
    if typ.kind == "varchar":
        return SqlType("varchar", length=6)
    if typ.kind == "char":
        return SqlType("char", length=5)
    return SqlType("numeric", scale=4) if key == "numeric_to_numeric" else typ
