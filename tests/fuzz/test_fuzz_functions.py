"""Every function of the table that the tests of `expr` have no plain case for: folded, over columns, and in PostgreSQL.

Promise: each key of the table of functions is either compared over columns of values there (`function_cases`), or has a call here, made
from its row: its name or operator over columns of its arguments' types. A call is answered three ways: over a table, which no optimizer
can fold; over the same values as constants, which it folds; and by PostgreSQL, where that has the function.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from fuzz_engines import Answer, Failure, Worlds

from mzsql.expr import functions
from mzsql.expr.functions.table import ScalarFunc
from mzsql.repr.types import SqlType

sys.path.append(str(Path(__file__).parents[1] / "expr"))
from function_cases import build

#: Columns by the kind of their values: name, type, and the values.
COLUMNS: dict[str, list[tuple[str, str, list[str]]]] = {
    "array": [
        ("ia", "integer[]", ["ARRAY[1, 2, NULL]", "ARRAY[3]", "'{}'::integer[]", "ARRAY[2, 1, 2]"]),
        ("ib", "integer[]", ["ARRAY[2]", "ARRAY[3, 4]", "'{}'::integer[]", "ARRAY[NULL, 1]"]),
    ],
    "text[]": [("ta", "text[]", ["ARRAY['a', 'b']", "ARRAY['b', '0']", "'{}'::text[]"])],
    "anyelement": [("n1", "integer", ["1", "2", "0", "-1", "3"])],
    "integer": [("n1", "integer", []), ("n2", "integer", ["2", "3", "1", "5"]), ("n1", "integer", [])],
    "bigint": [("b1", "bigint", ["'1'::bigint", "'0'::bigint", "'2'::bigint"]), ("b2", "bigint", ["'4'::bigint"])],
    "text": [
        ("s1", "text", ["'a'", "'b'", "''", "'abba'", "'x,y'", "'{}'"]),
        ("s2", "text", ["','", "'b'", "'-'"]),
        ("s3", "text", ["'?'", "'zz'"]),
    ],
    "bytea": [("y1", "bytea", ["'\\x6465'::bytea", "''::bytea", "'abc'::bytea"]), ("y2", "bytea", ["'k'::bytea"])],
    "date": [("d1", "date", ["DATE '2020-02-29'", "DATE '1999-12-31'"]), ("d2", "date", ["DATE '2024-01-01'"])],
    "timestamp": [
        ("p1", "timestamp", ["TIMESTAMP '2020-02-29 12:34:56.789'", "TIMESTAMP '1999-12-31 23:59:59'"]),
        ("p2", "timestamp", ["TIMESTAMP '2024-07-01 00:00:00'"]),
    ],
    "timestamptz": [
        ("z1", "timestamptz", ["TIMESTAMPTZ '2020-02-29 12:34:56.789+00'", "TIMESTAMPTZ '1999-07-31 23:59:59+00'"]),
        ("z2", "timestamptz", ["TIMESTAMPTZ '2024-07-01 00:00:00+00'"]),
    ],
    "time": [("h1", "time", ["TIME '12:34:56'", "TIME '00:00:00'"])],
    "numeric": [("u1", "numeric(8, 1)", ["1.5", "0.2"]), ("u2", "numeric(8, 1)", ["2.7", "9.1"])],
    "jsonb": [("j1", "jsonb", ["'{\"a\": {\"b\": 1}}'::jsonb", "'[1, [2, 3]]'::jsonb", "'\"x\"'::jsonb"])],
}  # fmt: skip
#: Columns of types that PostgreSQL has not.
OWN: dict[str, list[tuple[str, str, list[str]]]] = {
    "list": [
        ("la", "integer list", ["LIST[1, 2, NULL]", "LIST[3]", "LIST[2, 1, 2]"]),
        ("lb", "integer list", ["LIST[2]", "LIST[3, 4]", "LIST[NULL, 1]"]),
    ],
    "map": [
        ("ma", "map[text=>integer]", ["MAP['a' => 1, 'b' => NULL]", "MAP['b' => 2]"]),
        ("mb", "map[text=>integer]", ["MAP['a' => 1]", "MAP['b' => 2, 'c' => 3]"]),
    ],
}  # fmt: skip
#: Kinds that are made of other columns.
MADE = {
    "smallint": "n1::smallint", "uint2": "n2::uint2", "uint4": "n2::uint4", "uint8": "n2::uint8", "char": "s1::char(3)",
}  # fmt: skip
_RECORDS = ("ROW(n1, s1)", "ROW(n2, s2)")
_RANGES = ("int4range(n2 - 1, n2 + 2)", "int4range(n2 + 1, n2 + 4)")
#: Arguments that have to be constants, by the function's name and the argument's place.
CONSTANT = {
    **{(name, 1): "'[ab]+'" for name in ("~", "~*", "!~", "!~*", "regexp_replace", "regexp_match", "regexp_split_to_array")},
    ("regexp_replace", 2): "'#'", ("regexp_replace", 3): "'g'", ("regexp_match", 2): "'i'", ("regexp_split_to_array", 2): "'i'",
    ("digest", 1): "'sha256'", ("hmac", 1): "'key'", ("hmac", 2): "'sha1'", ("to_char", 1): "'YYYY-MM-DD HH24:MI:SS'",
    ("timezone", 0): "'Europe/Paris'", ("length", 1): "'utf8'",
    **{(name, 2): "'[]'" for name in ("int4range", "int8range", "numrange", "daterange", "tsrange", "tstzrange")},
}  # fmt: skip


def _keyed(name: str, more: tuple[str, ...]) -> str:
    """The key of a function of two texts, and more arguments of these kinds."""
    return "_".join([name, "text", "text", *more])


def _matched(name: str, more: tuple[str, ...]) -> str:
    """The call of such a one, with a pattern that has a group."""
    return f"regexp_{name}({', '.join(['s1', PATTERN, *more])})"


PATTERN = "'(B)(b?)'"
#: Calls with a grammar of their own.
SPECIAL = {
    "array": "ARRAY[n1, n2]", "list": "LIST[n1, n2]", "map": "MAP['a' => n1, 'b' => n2]", "array_get": "ia[n2]", "list_get": "la[n2]",
    "array_slice": "ia[1:2]", "list_slice": "la[1:2]", "map_build": "map_build(LIST[ROW('a', n1)])",
    "range_to_text": "int4range(n2, 7)", "text_to_range": "('[' || n2::text || ',9)')::int4range", "text_to_array": "'{1,NULL}'::integer[]",
    "text_to_list": "'{1,NULL}'::integer list", "text_to_map": "'{a=>1}'::map[text=>integer]", "array_to_array": "ia::bigint[]",
    "list_to_list": "la::bigint list", "map_to_map": "ma::map[text=>bigint]", "array_to_list": "ia::integer list",
    "array_to_text": "ia::text", "list_to_text": "la::text", "map_to_text": "ma::text", "record_to_text": "ROW(n1, s1)::text",
    "jsonb_build_object": "jsonb_build_object('a', n1, 'b', s1)", "bit_not_smallint": "~ n1::smallint",
    **{f"sha{bits}": f"sha{bits}('abc'::bytea)" for bits in (224, 384, 512)},  # of constants only
    "array_length": "array_length(ia, n2)", "array_upper": "array_upper(ia, n2)", "array_lower": "array_lower(ia, n2)",
    "int4range": "int4range(n2 - 1, n2 + 1)", "int4range_bounds": "int4range(n2 - 1, n2 + 1, '[]')",
    "hmac_bytea": "hmac(y1, 'key'::bytea, 'sha1')", "normalize": "normalize(s1)",
    "int2vector_to_array": "(n1::text::int2vector)[0]", "oidvector_to_array": "('7 8'::oidvector)[1]",
    "timezone_offset": "timezone_offset('Europe/Paris', z1)",
    "to_char_interval": "to_char(n1 * interval '90 minutes', 'DD HH24:MI:SS')",
    "to_char_real": "to_char(n1::real, '990.99')", "to_char_double": "to_char(n1::double precision, 'S999.9')",
    **{f"to_char_{kind}": f"to_char({column}, 'S999.9')" for kind, column in (("integer", "n1"), ("bigint", "b1"), ("numeric", "u1"))},
    **{
        _keyed(f"regexp_{name}", kinds[:count]): _matched(name, values[:count])
        for name, kinds, values in (
            ("count", ("integer", "text"), ("1", "'i'")),
            ("substr", ("integer", "integer", "text", "integer"), ("1", "1", "'i'", "2")),
            ("instr", ("integer", "integer", "integer", "text"), ("1", "1", "1", "'i'")),
        )
        for count in range(len(kinds) + 1)
    },
    "trim_array": "trim_array(ARRAY[n1, n2], 1)", "jsonb_delete_keys": "(jsonb_build_object('a', n1, 'b', n2) - ta)",
    "jsonb_delete_path": "(jsonb_build_object('a', n1, 'b', jsonb_build_object('0', n2)) #- ta)",
    "jsonb_object_pairs": "jsonb_object(ARRAY[ARRAY['a', s1], ARRAY['b', s2]])",
    "regexp_replace_text_text_text_integer_integer_text": "regexp_replace(s1, '[ab]', '#', 1, 2, 'i')",
    "position_bytea": "position('a'::bytea IN y1)", "overlay_bytea": "overlay(y1 PLACING 'bc'::bytea FROM 2)",
    "overlay_for_bytea": "overlay(y1 PLACING ''::bytea FROM 1 FOR n2)",
    "array_replace": "array_replace(ia, n1, n2)",
    "jsonb_set": "jsonb_set(jsonb_build_array(n1, n2), ARRAY['0'], '5'::jsonb)",
    "jsonb_set_create": "jsonb_set(jsonb_build_array(n1, n2), ARRAY['9'], '5'::jsonb, false)",
    "jsonb_insert": "jsonb_insert(jsonb_build_array(n1, n2), ARRAY['0'], '5'::jsonb)",
    "jsonb_insert_after": "jsonb_insert(jsonb_build_array(n1, n2), ARRAY['0'], '5'::jsonb, true)",
    "jsonb_object_keys_values": "jsonb_object(ARRAY['a', 'b'], ARRAY['1', s1])",
    **{f"array_fill_{sizes}": f"array_fill(n1, ARRAY[{', '.join(['n2', '1', '2', '1', '1', '2'][:sizes])}])" for sizes in range(1, 7)},
}  # fmt: skip
#: Hashes of Materialize's, of constants only.
HASHES = {
    f"{name}_{kind}": f"{name}('abc'::{kind})"
    for name in ("seahash", "kafka_murmur2")
    for kind in ("text", "bytea")
}
SPECIAL |= HASHES
#: What no call of SQL is, and where it is compared instead.
INTERNAL = {
    "window_payload": "what window functions are planned as, compared in test_fuzz_queries",
    "record_to_record": "a cast that UNION of rows makes",
    "mz_mode": "what mode() WITHIN GROUP is planned as, compared in the records of aggregates",
    "regexp_instr_text_text_integer_integer_integer_text_integer": "refused: no engine here tells the place of a group",
    "mz_setting": "what current_setting is planned as, asked in test_dbapi_catalog_functions",
    "error_if_null": "what mz_unsafe.mz_error_if_null is planned as, asked in test_dbapi_own_functions",
}
#: What PostgreSQL lacks, or has in another shape.
LACKING = {
    "digest_text": "an extension", "digest_bytea": "an extension", "hmac_text": "an extension", "hmac_bytea": "an extension",
    "crc32_text": "not before version 18", "crc32_bytea": "not before version 18", "timezone_t": "a time with a zone there",
    **dict.fromkeys(HASHES, "Materialize's own"), "timezone_offset": "Materialize's own",
}  # fmt: skip


def _plain() -> frozenset[str]:
    return frozenset(case.func.key for case in build(size=70).cases)


def _others() -> list[ScalarFunc]:
    plain = _plain()
    return [f for f in functions.all_scalars() if f.key not in plain and f.key not in INTERNAL]


OTHERS = _others()


def _kind(typ: SqlType) -> str:
    if typ.kind == "array" and typ.element is not None and typ.element.kind == "text":
        return "text[]"
    return typ.kind


def call_of(func: ScalarFunc) -> str | None:
    """The call of a function over columns; None where nobody has said how."""
    if func.key in SPECIAL:
        return SPECIAL[func.key]
    args: list[str] = []
    for place, typ in enumerate(func.args):
        kind = _kind(typ)
        number = sum(1 for earlier in func.args[:place] if _kind(earlier) == kind)
        many = [name for name, _, _ in (COLUMNS | OWN).get(kind, [])]
        many = {"record": list(_RECORDS), "range": list(_RANGES)}.get(kind, many)
        found = (
            CONSTANT.get((func.name, place))
            or MADE.get(kind)
            or (many[number] if number < len(many) else None)
        )
        if found is None:
            return None
        args.append(found)
    if func.name[0].isalpha():
        return f"{func.name}({', '.join(args)})"
    return f"({func.name} {args[0]})" if len(args) == 1 else f"({args[0]} {func.name} {args[1]})"


CALLS = {func.key: call for func in OTHERS if (call := call_of(func)) is not None}
_SIZE = 7
#: So many of them, NULLs last, as constants too.
_FOLDED = 3


def rows() -> list[dict[str, str]]:
    """Rows of the table, a value's SQL by its column's name; each value of a pool occurs, and NULL."""
    rng = random.Random(5)
    made: list[dict[str, str]] = []
    columns = {
        name: (typ, pool) for many in (COLUMNS | OWN).values() for name, typ, pool in many if pool
    }
    for number in range(_SIZE):
        row = {}
        for name, (typ, pool) in columns.items():
            null = number == _SIZE - 1 or (number >= len(pool) and rng.random() < 0.15)
            value = pool[number] if number < len(pool) else rng.choice(pool)
            row[name] = f"(NULL::{typ})" if null and name != "n2" else value
        made.append(row)
    return made


ROWS = rows()


@pytest.fixture(scope="module")
def filled(worlds: Worlds) -> Worlds:
    for own in (False, True):
        pools = COLUMNS | OWN if own else COLUMNS
        types = {name: typ for many in pools.values() for name, typ, pool in many if pool}
        execute = worlds.ours.execute if own else lambda sql: worlds.postgres.execute(sql.encode())
        execute(f"CREATE TABLE args (i integer, {', '.join(f'{n} {t}' for n, t in types.items())})")
        for number, row in enumerate(ROWS):
            values = ", ".join(row[name] for name in types)
            execute(f"INSERT INTO args VALUES ({number}, {values})")
    return worlds


def _over_columns(ask: Callable[[str], Answer], call: str) -> list[str | None] | Failure:
    found = ask(f"SELECT i, ({call})::text FROM args ORDER BY i")
    return found if isinstance(found, Failure) else [value for _, value in found]


def _folded(worlds: Worlds, calls: list[str]) -> list[list[str | None]]:
    """The calls over each row's constants, in one statement a row."""
    answers: list[list[str | None]] = [[] for _ in calls]
    for row in ROWS[-_FOLDED:]:
        values = ", ".join(row.values())
        # Constants under a name: a call's text stays the same, and the optimizer still folds it.
        source = f"FROM (VALUES ({values})) AS args ({', '.join(row)})"
        found = worlds.mine(f"SELECT {', '.join(f'({call})::text' for call in calls)} {source}")
        if isinstance(found, Failure):
            alone = [worlds.mine(f"SELECT ({call})::text {source}") for call in calls]
            found = [tuple(a.message if isinstance(a, Failure) else a[0][0] for a in alone)]
        for answer, value in zip(answers, found[0], strict=True):
            answer.append(value)
    return answers


def _same(key: str, mine: object, theirs: object) -> bool:
    if isinstance(mine, str) and isinstance(theirs, str) and key.startswith("jsonb"):
        return mine == theirs or json.loads(mine) == json.loads(theirs)
    return mine == theirs


def test_every_function_has_a_comparison() -> None:
    missing = [func.key for func in OTHERS if func.key not in CALLS]
    assert not missing
    keys = {func.key for func in functions.all_scalars()}
    assert set(SPECIAL) | set(INTERNAL) | set(LACKING) <= keys


@pytest.mark.long
def test_other_functions_over_columns_folded_and_in_postgresql(filled: Worlds) -> None:
    wrong: list[str] = []
    compared = 0
    keys = list(CALLS)
    for start in range(0, len(keys), 40):
        chunk = keys[start : start + 40]
        folded = _folded(filled, [CALLS[key] for key in chunk])
        for key, constant in zip(chunk, folded, strict=True):
            call = CALLS[key]
            mine = _over_columns(filled.mine, call)
            if isinstance(mine, list) and mine[-_FOLDED:] != constant:
                wrong.append(f"{key} {call}: over columns {mine}, folded {constant}")
            own = any(
                word in call
                for word in ("LIST", "MAP", "la", "lb", "ma", "mb", "list", "uint", "map")
            )
            if key in LACKING or (own and _lacks(filled, call)):
                continue
            theirs = _over_columns(filled.theirs, call)
            compared += 1
            failed = isinstance(theirs, Failure) or isinstance(mine, Failure)
            if failed or not all(map(partial(_same, key), mine, theirs)):
                wrong.append(f"{key} {call}: mine {mine}, PostgreSQL {theirs}")
    assert not wrong, "\n".join(wrong)
    assert compared > 70


def _lacks(worlds: Worlds, call: str) -> bool:
    """Whether PostgreSQL does not know a call's types."""
    return isinstance(_over_columns(worlds.theirs, call), Failure)
