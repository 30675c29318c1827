"""Regular expressions: matching and replacing.

Promise: patterns are RE2's syntax (Materialize's, but for what little its crate has beyond), and one that is none is an error with
RE2's words; what only Java knows, look-around and back references, is refused in Spark too. So a pattern has to be a constant.
``$1`` in a replacement stands for a group, as in Materialize.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.declare import Ast, constant_text
from mzsql.expr.functions.table import Engine, ErrorRule, ScalarFunc, Spelling, Sql
from mzsql.repr.types import BOOLEAN, CHAR, TEXT, SqlType

_FLAGS = frozenset("cgimnsx")


@lru_cache(maxsize=1024)
def problem(pattern: str) -> str | None:
    """What RE2 says is wrong with a pattern."""
    try:
        pc.match_substring_regex(pa.array([""]), pattern)
    except pa.ArrowInvalid as failure:
        return str(failure).partition(": ")[2] or str(failure)
    return None


def _pattern(args: Sequence[Sql], place: int, flags: str) -> str | None:
    text = constant_text(args[place], "a regular expression")
    if text is None:
        return None
    inline = "".join(letter for letter in "ims" if letter in flags)
    return f"(?{inline}){text}" if inline else text


def _invalid(place: int) -> ErrorRule:
    def condition(_engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        known = constant_text(args[place], "a regular expression")
        return s.boolean(known is not None and problem(known) is not None)

    def message(_engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        known = constant_text(args[place], "a regular expression") or ""
        return s.text(f"invalid regular expression: {problem(known)}")

    return ErrorRule(condition, message)


def _matching(*, insensitive: bool, negated: bool) -> Spelling:
    def value(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        pattern = _pattern(args, 1, "i" if insensitive else "")
        if pattern is None or problem(pattern) is not None:
            return s.null()
        found = s.matches(args[0].ast, pattern, engine)
        return s.not_(found) if negated else found

    return value


def _operators() -> list[ScalarFunc]:
    functions = []
    for symbol, key, insensitive, negated in (
        ("~", "regex_match", False, False),
        ("~*", "regex_imatch", True, False),
        ("!~", "regex_not_match", False, True),
        ("!~*", "regex_not_imatch", True, True),
    ):
        for suffix, subject in (("", TEXT), ("_char", CHAR)):
            functions.append(
                ScalarFunc(
                    key=f"{key}{suffix}",
                    name=symbol,
                    args=(subject, TEXT),
                    result=BOOLEAN,
                    value=_matching(insensitive=insensitive, negated=negated),
                    explain=f"({{0}} {symbol} {{1}})",
                    errors=(_invalid(1),),
                )
            )
    return functions


def groups(pattern: str) -> int:
    """How many capturing groups a valid pattern has."""
    count, index, inside = 0, 0, False
    while index < len(pattern):
        char = pattern[index]
        if char == "\\":
            index += 1
        elif inside:
            inside = char != "]"
        elif char == "[":
            inside = True
            # A bracket right behind the opening one, or its negation, is a member.
            index += 1 if pattern[index + 1 : index + 2] == "^" else 0
            index += 1 if pattern[index + 1 : index + 2] == "]" else 0
        elif char == "(":
            follows = pattern[index + 1 :]
            count += not follows.startswith("?") or follows.startswith(("?P<", "?<"))
        index += 1
    return count


def _flags(args: Sequence[Sql], place: int) -> str:
    return (
        (constant_text(args[place], "flags of a regular expression") or "")
        if len(args) > place
        else ""
    )


def _replace(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    flags = _flags(args, 3)
    pattern, replacement = _pattern(args, 1, flags), constant_text(args[2], "a replacement")
    if pattern is None or replacement is None or problem(pattern) is not None:
        return s.cast(s.null(), TEXT, engine)
    count = groups(pattern)
    shown = _replacement(replacement, count, engine)
    if "g" in flags:
        return s.regexp_replace(args[0].ast, pattern, shown, engine)
    if engine is Engine.DUCKDB:
        return s.call("REGEXP_REPLACE", args[0].ast, s.text(pattern), s.text(shown))
    # Spark replaces every match: one that takes the rest of the text with it is the only one.
    return s.regexp_replace(args[0].ast, f"(?:{pattern})((?s:.*))$", f"{shown}${count + 1}", engine)


def _replacement(text: str, count: int, engine: Engine) -> str:
    """``$1`` and ``${1}`` in the engine's form; a group that is not there is empty, ``$$`` is a dollar."""
    out = []
    for literal, number, braced, dollar in re.findall(r"([^$]+)|\$(\d+)|\$\{(\d+)\}|(\$\$?)", text):
        if literal:
            escaped = literal.replace("\\", "\\\\")
            out.append(escaped)
        elif dollar:
            out.append("$" if engine is Engine.DUCKDB else "\\$")
        elif int(number or braced) <= count:
            mark = "\\" if engine is Engine.DUCKDB else "$"
            out.append(f"{mark}{int(number or braced)}")
    return "".join(out)


_BAD_FLAG = ErrorRule(
    lambda _engine, args, _typ: s.boolean(bool(set(_flags(args, 3)) - _FLAGS)),
    lambda _engine, args, _typ: s.text(
        f"invalid regular expression flag: {''.join(sorted(set(_flags(args, 3)) - _FLAGS))[:1]}"
    ),
)


def _split(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    pattern = _pattern(args, 1, _flags(args, 2))
    if pattern is None or problem(pattern) is not None:
        return s.cast(s.null(), typ, engine)
    if engine is Engine.SPARK:
        return s.call("SPLIT", args[0].ast, s.text(pattern), s.num(-1))
    return s.call("REGEXP_SPLIT_TO_ARRAY", args[0].ast, s.text(pattern))


def _functions() -> list[ScalarFunc]:
    texts = SqlType("array", element=TEXT)
    functions = []
    for count in (3, 4):
        functions.append(
            ScalarFunc(
                key="regexp_replace" if count == 3 else "regexp_replace_flags",
                name="regexp_replace",
                args=(TEXT,) * count,
                result=TEXT,
                value=_replace,
                errors=(_invalid(1), _BAD_FLAG) if count == 4 else (_invalid(1),),
            )
        )
    for count in (2, 3):
        functions.append(
            ScalarFunc(
                key="regexp_split_to_array" if count == 2 else "regexp_split_to_array_flags",
                name="regexp_split_to_array",
                args=(TEXT,) * count,
                result=texts,
                value=_split,
                errors=(_invalid(1),),
            )
        )
    return functions


FUNCTIONS: tuple[ScalarFunc, ...] = (*_operators(), *_functions())
