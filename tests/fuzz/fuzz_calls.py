"""Calls of every declared function, over columns of its arguments' types and constants that code gets wrong.

Promise: `Calls.call` gives the SQL of a function's row of the table: its operator between its arguments, its cast, its keyword for a unit
of time, or its name before them. Arguments that have to be constants are; nothing keeps a call from failing on its values, which is data.
"""

from __future__ import annotations

import functools
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fuzz_awkward import COMMON, KINDS, quoted
from fuzz_tree import Node, expr, text

from mzsql.expr import functions
from mzsql.expr.functions.table import ScalarFunc
from mzsql.repr.types import SqlType

_ZONES = (
    "Europe/Oslo",
    "America/New_York",
    "Pacific/Apia",
    "UTC",
    "Asia/Kathmandu",
    "-03:30",
    "Australia/Lord_Howe",
)
_PATTERNS = ("a", "[ab]+", "^$", "ß", "\\\\w", "i", "(a)|(b)", ".")
_TRUNCATED = ("year", "quarter", "month", "week", "day", "hour", "second", "century")
_PARTS = ("year", "month", "day", "hour", "second", "epoch", "dow", "century", "microseconds")
#: Arguments that have to be constants, by the function's name and the argument's place.
CONSTANT: dict[tuple[str, int], tuple[str, ...]] = {
    **{(name, 1): _PATTERNS for name in ("~", "~*", "!~", "!~*", "regexp_replace", "regexp_match", "regexp_split_to_array")},
    ("regexp_replace", 2): ("", "#", "\\\\1"), ("regexp_replace", 3): ("g", "i", "gi"),
    ("regexp_match", 2): ("i",), ("regexp_split_to_array", 2): ("i",),
    ("digest", 1): ("sha256", "md5"), ("hmac", 1): ("key",), ("hmac", 2): ("sha1", "sha512"),
    ("to_char", 1): ("YYYY-MM-DD HH24:MI:SS", "Day DDD HH12 AM US"), ("timezone", 0): _ZONES, ("length", 1): ("utf8",),
    ("timezone_offset", 0): _ZONES, ("encode", 1): ("hex", "base64", "escape"), ("decode", 1): ("hex", "base64", "escape"),
    ("convert_from", 1): ("utf8",), ("convert_to", 1): ("utf8",),
    ("date_trunc", 0): _TRUNCATED, ("date_part", 0): _PARTS, ("datediff", 0): ("day", "month", "hour",
        "year"),
    **{(name, 2): ("[]", "()", "[)", "(]") for name in ("int4range", "int8range", "numrange", "daterange", "tsrange", "tstzrange")},
    ("like_escape", 1): ("!", "", "\\\\", "a"), ("repeat", 1): ("0", "2", "-1"), ("lpad", 1): ("0", "3", "7"),
    ("rpad", 1): ("0", "3", "7"), ("normalize", 1): ("NFC", "NFD", "NFKC"),
    ("array_to_string", 1): (",",), ("parse_ident", 1): ("true", "false"), ("to_number", 1): ("999D99", "S9,999"),
    **{(name, 1): ("a", "[ab]+", "ß", "(a)|(b)") for name in ("regexp_count", "regexp_instr", "regexp_substr")},
    ("regexp_count", 3): ("g", "i"), ("regexp_instr", 5): ("g", "i"), ("regexp_instr", 6): ("0",),
    ("regexp_substr", 4): ("g", "i"), ("regexp_substr", 5): ("0",),
}  # fmt: skip
#: Calls with a grammar of their own, of arguments in braces by their kinds.
SPECIAL = {
    "and": "({boolean} AND {boolean})", "or": "({boolean} OR {boolean})", "not": "(NOT {boolean})",
    "is_null": "({any} IS NULL)", "is_true": "({boolean} IS TRUE)", "is_false": "({boolean} IS FALSE)",
    "array": "ARRAY[{integer}, {integer}]", "list": "LIST[{integer}, {integer}]", "map": "MAP['a' => {integer}, 'ß' => {integer}]",
    "row": "ROW({any}, {any})::text", "record_to_text": "ROW({integer}, {any})::text",
    "array_get": "({integers})[{smallint}]", "list_get": "({list})[{smallint}]", "array_slice": "({integers})[1:2]",
    "list_slice": "({list})[1:2]", "map_build": "map_build(LIST[ROW({text}, {integer})])",
    "regexp_replace_text_text_text_integer": "regexp_replace({text}, '[ab]+', '#', {integer})",
    "regexp_replace_text_text_text_integer_integer": "regexp_replace({text}, '[ab]+', '#', {integer}, 2)",
    "regexp_replace_text_text_text_integer_integer_text": "regexp_replace({text}, '[ab]+', '#', {integer}, 2, 'i')",
    "date_part_any_interval": "date_part('hour', {interval})",
    **{f"text_to_{name}": f"({{text}})::{name}" for name in ("aclitem", "mz_aclitem", "int2vector", "oidvector")},
    "int2vector_to_array": "('1 2'::int2vector)::smallint[]", "oidvector_to_array": "('1 2'::oidvector)::oid[]",
    "to_char_interval": "to_char({interval}, 'YYYY MM DD HH24:MI:SS.US HH12 AM Q')",
    "text_to_char_code": "({text})::\"char\"", "integer_to_char_code": "({integer})::\"char\"",
    "array_accumulated": "({integers})[1:1]",
    "jsonb_object_pairs": "jsonb_object(ARRAY[['a', {text}], ['ß', 'b']])", "array_item": "({integers})[1]", "list_item": "({list})[1]",
    "text_to_range": "({text}::text)::int4range", "text_to_array": "({text})::integer[]", "text_to_list": "({text})::integer list",
    "text_to_map": "({text})::map[text=>integer]", "array_to_array": "({integers})::bigint[]", "list_to_list": "({list})::bigint list",
    "map_to_map": "({map})::map[text=>bigint]", "array_to_list": "({integers})::integer list", "array_to_text": "({integers})::text",
    "list_to_text": "({list})::text", "map_to_text": "({map})::text", "range_to_text": "({range})::text",
    "jsonb_build_object": "jsonb_build_object('a', {any}, 'ß', {integer})", "position": "position({text} IN {text})",
    "normalize": "normalize({text}, NFC)", "eq_record": "(ROW({integer}, {text}) = ROW({integer}, {text}))",
    **{f"sha{bits}": f"sha{bits}('abc'::bytea)" for bits in (224, 384, 512)},
    "hmac_bytea": "hmac('abc'::bytea, 'key'::bytea, 'sha1')", "hmac_text": "hmac('abc', 'key', 'sha1')",
    "crc32_text": "crc32('abc')", "crc32_bytea": "crc32('abc'::bytea)",
    "seahash_text": "seahash('abc'::text)", "seahash_bytea": "seahash('abc'::bytea)", "kafka_murmur2_text": "kafka_murmur2('abc'::text)",
    "kafka_murmur2_bytea": "kafka_murmur2('abc'::bytea)", "trim": "trim({text})", "overlay": "overlay({text} PLACING {text} FROM 2)",
    "position_bytea": "position({bytea} IN {bytea})", "overlay_bytea": "overlay({bytea} PLACING {bytea} FROM 2)",
    "overlay_for_bytea": "overlay({bytea} PLACING {bytea} FROM 2 FOR 1)",
    **{f"array_fill_{n}": f"array_fill({{integer}}, ARRAY[{', '.join('212112'[:n])}])" for n in range(1, 7)},
}  # fmt: skip
#: What no statement calls: what others are planned as, and what says something of the environment instead of its arguments.
INTERNAL = {
    "window_payload": "what window functions are planned as",
    "record_to_record": "a cast that UNION of rows makes",
    "mz_setting": "what current_setting is planned as",
}
_UNIT = re.compile(r"(extract|date_part|date_trunc)_([a-z]+)")
_NUMERICS = ("numeric2", "numeric4", "numeric0", "numeric")
_POLYMORPHIC = {
    "anyelement": ("integer",),
    "array": ("integers",),
    "list": ("list",),
    "map": ("map",),
    "range": ("range",),
}


def kinds_of(typ: SqlType) -> tuple[str, ...]:
    """The kinds whose values an argument of a type takes; none: any."""
    if typ.kind == "array" and typ.element is not None and typ.element.kind == "text":
        return ("texts",)
    if typ.kind in _POLYMORPHIC:
        return _POLYMORPHIC[typ.kind]
    if typ.kind == "numeric":
        return _NUMERICS
    return (typ.kind,) if typ.kind in KINDS else ()


def result_kind(func: ScalarFunc) -> str | None:
    """The kind of a call's value, where the arguments do not matter."""
    if callable(func.result) or func.key in ("row", "record_to_text"):
        return None
    found = kinds_of(func.result)
    return found[0] if len(found) == 1 and func.result.kind not in _POLYMORPHIC else None


@functools.cache
def callable_functions() -> tuple[ScalarFunc, ...]:
    """Every function that a statement can call, by key; what only plans call has a name of several words."""
    found = functions.all_scalars()
    return tuple(f for f in found if f.key not in INTERNAL and " " not in f.name)


@functools.cache
def _by_result() -> Mapping[str, Sequence[ScalarFunc]]:
    made: dict[str, list[ScalarFunc]] = {}
    for func in callable_functions():
        kind = result_kind(func)
        if kind is not None:
            made.setdefault(kind, []).append(func)
    return made


#: Functions that answer in PostgreSQL as here, whatever they are given.
_COMMON = frozenset({
    "+", "-", "*", "=", "<>", "<", "<=", ">", ">=", "and", "or", "not", "is_null", "is_true", "is_false", "abs", "length", "octet_length",
    "reverse", "||", "sign", "floor", "md5", "isempty", "coalesce", "@>", "&&", "replace", "strpos", "starts_with", "translate", "left",
        "right",
})  # fmt: skip


@functools.cache
def common_functions() -> tuple[ScalarFunc, ...]:
    """The functions that PostgreSQL has too, of types that it has."""
    return tuple(
        func
        for func in callable_functions()
        if func.name in _COMMON and all(set(kinds_of(typ)) & set(COMMON) for typ in func.args)
    )


@dataclass(frozen=True)
class Ref:
    """A column that a call may read."""

    sql: str
    kind: str | None


class Calls:
    """Calls from a generator of random numbers.

    Args:
        functions: those that are called; all by default.
    """

    def __init__(self, rng: random.Random, allowed: Sequence[ScalarFunc] | None = None) -> None:
        self.rng = rng
        self.allowed = callable_functions() if allowed is None else tuple(allowed)
        self._known = {func.key for func in self.allowed}
        self._kinds = tuple(KINDS) if allowed is None else COMMON

    def leaf(self, kinds: tuple[str, ...], refs: Sequence[Ref]) -> Node:
        """A column of one of the kinds, or a constant."""
        many = [ref for ref in refs if ref.kind is not None and (not kinds or ref.kind in kinds)]
        if many and self.rng.random() < 0.9:
            ref = self.rng.choice(many)
            return expr(str(ref.kind), ref.sql)
        kind = self.rng.choice(
            [kind for kind in kinds if kind in self._kinds] or ["integer", "text"]
        )
        typ, pool = KINDS[kind]
        constant = "NULL" if self.rng.random() < 0.05 else quoted(self.rng.choice(pool))
        return expr(kind, f"({constant}::{typ})")

    def value(self, kinds: tuple[str, ...], refs: Sequence[Ref], depth: int) -> Node:
        """A value of one of the kinds."""
        if depth > 0 and kinds and self.rng.random() < 0.3:
            kind = self.rng.choice(kinds)
            made = self.of_kind(kind, refs, depth - 1)
            if made is not None:
                return made
        return self.leaf(kinds, refs)

    def of_kind(self, kind: str, refs: Sequence[Ref], depth: int) -> Node | None:
        """A call whose value is of a kind; None where no function's is."""
        many = [func for func in _by_result().get(kind, ()) if func.key in self._known]
        return self.call(self.fitting(many, refs), refs, depth) if many else None

    def any(self, refs: Sequence[Ref], depth: int = 1) -> Node:
        """A call of any function, of one rather for whose arguments there are columns."""
        return self.call(self.fitting(self.allowed, refs), refs, depth)

    def fitting(self, many: Sequence[ScalarFunc], refs: Sequence[Ref]) -> ScalarFunc:
        """The one of some functions with the fewest arguments that would have to be constants."""
        there = {ref.kind for ref in refs}

        def lacking(func: ScalarFunc) -> int:
            wanted = [kinds_of(typ) for typ in func.args]
            return sum(not there.intersection(kinds) for kinds in wanted if kinds)

        return min(self.rng.sample(many, min(len(many), 8)), key=lacking)

    def call(self, func: ScalarFunc, refs: Sequence[Ref], depth: int = 1) -> Node:
        """A call of a function."""
        kind = result_kind(func) or "?"
        special = SPECIAL.get(func.key) or SPECIAL.get(
            func.name if func.name in ("trim", "overlay", "position") else ""
        )
        if special:
            return expr(kind, *self._filled(special, refs, depth))
        if func.name in ("least", "greatest", "coalesce"):
            args = [self.leaf(("text", "varchar"), refs), self.leaf(("text",), refs)]
            ref = self.rng.choice([ref for ref in refs if ref.kind] or [None])
            if ref is not None:
                args = [self.leaf((str(ref.kind),), refs) for _ in range(2)]
            return expr(args[0].typ[0], f"{func.name}(", args[0], ", ", args[1], ")")
        types = list(func.args)
        if func.variadic is not None:
            types += [func.variadic] * self.rng.randint(1, 2)
        args = [self._argument(func, place, typ, refs, depth) for place, typ in enumerate(types)]
        unit = _UNIT.fullmatch(func.name)
        if unit and unit[1] == "extract":
            return expr(kind, f"extract({unit[2]} FROM ", args[0], ")")
        if unit:
            return expr(kind, f"{unit[1]}('{unit[2]}', ", args[0], ")")
        if func.name == "cast":
            return expr(kind, "(", args[0], f")::{_target(func)}")
        if func.name[0].isalpha():
            parts: list[Node | str] = [f"{func.name}("]
            for place, arg in enumerate(args):
                parts += [", ", arg] if place else [arg]
            return expr(kind, *parts, ")")
        if len(args) == 1:
            return expr(kind, f"({func.name} ", args[0], ")")
        return expr(kind, "(", args[0], f" {func.name} ", args[1], ")")

    def _filled(self, form: str, refs: Sequence[Ref], depth: int) -> list[Node | str]:
        parts: list[Node | str] = []
        for number, piece in enumerate(re.split(r"\{(\w+)\}", form)):
            if number % 2 == 0:
                parts.append(piece)
            else:
                parts.append(self.value(() if piece == "any" else (piece,), refs, depth))
        return parts

    def _argument(
        self, func: ScalarFunc, place: int, typ: SqlType, refs: Sequence[Ref], depth: int
    ) -> Node:
        constants = CONSTANT.get((func.name, place))
        if (
            constants is not None
            and (func.name != "length" or len(func.args) > 1)
            and typ.kind != "interval"
        ):
            return text(quoted(self.rng.choice(constants)))
        if typ.kind == "record":
            return text(
                "ROW(", self.leaf(("integer",), refs), ", ", self.leaf(("text",), refs), ")"
            )
        kinds = kinds_of(typ)
        if not kinds and typ.kind not in ("any", "anyelement"):
            return text(f"('1'::{typ.kind})")
        return self.value(kinds, refs, depth)


def _target(func: ScalarFunc) -> str:
    to = func.key.removesuffix("_checked").rpartition("_to_")[2]
    return {
        "varchar": "varchar(5)",
        "char": "char(5)",
        "numeric": "numeric(30, 4)",
        "double": "double precision",
    }.get(to, to)
