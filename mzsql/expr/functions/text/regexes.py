"""Regular expressions: matching, replacing, splitting, extracting.

Promise: patterns are those of `mzsql.expr.functions.text.patterns`; an invalid one is an error in RE2's words;
look-around and back references, which only Java supports, are refused in Spark too. DuckDB parses a non-constant
pattern for each row; a dataflow, run by Spark, requires a constant. ``$1`` in a replacement is a group, as in
Materialize.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.declare import Ast, constant_text
from mzsql.expr.functions.table import Engine, ErrorRule, ScalarFunc, Spelling, Sql
from mzsql.expr.functions.text.patterns import (
    FLAGS,
    Group,
    groups,
    inline,
    matches_nothing,
    problem,
    spelled,
)
from mzsql.expr.functions.text.sizes import MAX_RESULT, TOO_LARGE, is_short, octets, too_large
from mzsql.repr.errors import Unsupported
from mzsql.repr.types import BOOLEAN, CHAR, TEXT, SqlType

TEXTS = SqlType("array", element=TEXT)
_WHAT = "a regular expression"


# --- patterns and flags ------------------------------------------------------------------------------


def is_known(arg: Sql) -> bool:
    """Whether an argument is constant, NULL included."""
    try:
        constant_text(arg, _WHAT)
    except Unsupported:
        return False
    return True


def known_flags(args: Sequence[Sql], place: int) -> str:
    """The flags of a call, or none.

    Args:
        args: the arguments.
        place: the position of the flags.

    Raises:
        Unsupported: they are not constant.
    """
    if len(args) <= place:
        return ""
    return constant_text(args[place], "flags of a regular expression") or ""


def valid_pattern(arg: Sql) -> str | None:
    """The text of a constant pattern; None for NULL, and for an invalid one, which has its own error.

    Raises:
        Unsupported: it is not constant.
    """
    text = constant_text(arg, _WHAT)
    return None if text is None or problem(text) is not None else text


def _by_row(engine: Engine, arg: Sql, flags: str, build: Callable[[Ast], Ast]) -> Ast:
    """The result of ``build`` for a non-constant pattern; NULL if the pattern is invalid.

    The lambda's parameter keeps DuckDB from parsing the pattern, and failing, before there is a row.
    """
    if engine is Engine.SPARK:
        raise Unsupported(
            f"{_WHAT} that is not a constant is not supported in a dataflow",
            hint="A SELECT of it runs; so does one over a view that is not materialized.",
        )
    whole = s.concat(s.text(inline(flags)), arg.ast)
    return s.let(whole, "re0", s.call("TRY", build(s.variable("re0"))), engine)


def invalid(place: int) -> ErrorRule:
    """The error for an argument that is no pattern."""

    def condition(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        if not is_known(args[place]):
            tried = _by_row(
                engine, args[place], "", lambda p: s.call("REGEXP_MATCHES", s.text(""), p)
            )
            return s.is_null(tried)
        known = constant_text(args[place], _WHAT)
        return s.boolean(known is not None and problem(known) is not None)

    def message(_engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        lead = "invalid regular expression: "
        if not is_known(args[place]):
            return s.concat(s.text(lead), args[place].ast)
        known = constant_text(args[place], _WHAT) or ""
        return s.text(f"{lead}{problem(known)}")

    return ErrorRule(condition, message)


def bad_flag(place: int, allowed: frozenset[str] = FLAGS) -> ErrorRule:
    """The error for flags other than those allowed."""

    def unknown(args: Sequence[Sql]) -> str:
        return next((flag for flag in known_flags(args, place) if flag not in allowed), "")

    return ErrorRule(
        lambda _engine, args, _typ: s.boolean(bool(unknown(args))),
        lambda _engine, args, _typ: s.text(f"invalid regular expression flag: {unknown(args)}"),
    )


def refuse_nothing(pattern: str, flags: str) -> None:
    """Refuse patterns for which Java finds more matches: it also matches the empty text right after a match.

    Args:
        pattern: the pattern.
        flags: its flags.

    Raises:
        Unsupported: the pattern matches the empty text.
    """
    if matches_nothing(inline(flags) + pattern):
        raise Unsupported(
            "every match of a regular expression that matches the empty text is not supported in a dataflow"
        )


# --- matching ----------------------------------------------------------------------------------------


def _matching(*, insensitive: bool, negated: bool) -> Spelling:
    flags = "i" if insensitive else ""

    def value(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        text = args[0].ast
        if not is_known(args[1]):
            found = _by_row(engine, args[1], flags, lambda p: s.call("REGEXP_MATCHES", text, p))
        else:
            pattern = valid_pattern(args[1])
            if pattern is None:
                return s.cast(s.null(), BOOLEAN, engine)
            found = s.matches(text, spelled(pattern, flags, engine), engine)
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
                    errors=(invalid(1),),
                )
            )
    return functions


def captured(text: Ast, pattern: str, group: Group | None, number: int) -> Ast:
    """A group of the first match; NULL if the group took no part in it.

    Engines return the empty text then, so an empty group is NULL where the pattern can match without it.
    """
    found = s.regexp_group(text, pattern, number)
    return s.nullif(found, s.text("")) if group is not None and group.optional else found


def _match(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    """The groups of the first match, or the match itself if there are no groups; NULL without a match."""
    pattern, text = valid_pattern(args[1]), args[0].ast
    if pattern is None:
        return s.cast(s.null(), typ, engine)
    whole, known = spelled(pattern, known_flags(args, 2), engine), groups(pattern)
    items = [captured(text, whole, group, i) for i, group in enumerate(known, start=1)]
    made = s.array(*(items or [captured(text, whole, None, 0)]))
    return s.case((s.matches(text, whole, engine), s.cast(made, typ, engine)))


# --- replacing ---------------------------------------------------------------------------------------


def replaced(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    """The text with the first match replaced or, with the flag g, all matches."""
    if not _may_write_much(args):
        return _with_replacement(engine, args)
    # NULL where the result would be too large, which is a separate error, so that no giant text is built.
    fits = s.not_(too_large(_written_size(engine, args, typ)))
    return _with_replacement(engine, args, lambda new: s.case((fits, new)))


def _may_write_much(args: Sequence[Sql]) -> bool:
    return "g" in known_flags(args, 3) and not is_short(args[2])


def _written_size(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    """The bytes of the text after replacement, without groups; matches are counted only if one per byte would be too
    many.
    """
    size, of_new = octets(args[0].ast, engine), octets(args[2].ast, engine)
    without, marked = (
        octets(replaced(engine, [*args[:2], Sql(s.text(one), TEXT), *args[3:]], TEXT), engine)
        for one in ("", "x")
    )
    grown = s.add(without, s.mul(s.sub(marked, without), of_new))
    small = s.lte(s.mul(s.add(size, s.num(1)), of_new), s.num(MAX_RESULT))
    return s.case((small, s.big(s.num(0))), otherwise=grown)


def writes_too_much(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    """Whether the result of `replaced` would be too large."""
    if not _may_write_much(args):
        return s.boolean(False)
    return too_large(_written_size(engine, args, typ))


#: Parts of a replacement: what is no reference, a name, a name in braces, a dollar.
_REPLACEMENT = re.compile(
    r"([^$]+)|\$([0-9]+|[A-Za-z_][A-Za-z0-9_]*)|\$\{([^}]+)\}|(\$\$?)", re.ASCII
)


def _with_replacement(
    engine: Engine, args: Sequence[Sql], guarded: Callable[[Ast], Ast] = lambda new: new
) -> Ast:
    """The text with matches replaced; ``guarded`` is applied to the replacement in the engine's syntax."""
    flags = known_flags(args, 3)
    every = [s.text("g")] if "g" in flags else []
    if not (is_known(args[1]) and is_known(args[2])):
        shown = guarded(_by_duckdb(args[2].ast))
        return _by_row(
            engine,
            args[1],
            flags,
            lambda p: s.call("REGEXP_REPLACE", args[0].ast, p, shown, *every),
        )
    pattern, replacement = valid_pattern(args[1]), constant_text(args[2], "a replacement")
    if pattern is None or replacement is None:
        return s.cast(s.null(), TEXT, engine)
    names = [group.name for group in groups(pattern)]
    whole, shown_text = spelled(pattern, flags, engine), _replacement(replacement, names, engine)
    if every and engine is Engine.SPARK:
        refuse_nothing(pattern, flags)
    if every or engine is Engine.DUCKDB:
        return s.call(
            "REGEXP_REPLACE",
            args[0].ast,
            s.text(whole),
            guarded(s.text(shown_text)),
            *(every if engine is Engine.DUCKDB else []),
        )
    # Spark replaces every match, so the pattern is extended to the whole text, which matches once.
    everything = f"\\A((?s:.*?))(?:{whole})((?s:.*))\\z"
    shown_text = _replacement(replacement, names, engine, behind=1)
    return s.regexp_replace(args[0].ast, everything, f"$1{shown_text}${len(names) + 2}", engine)


def _replacement(text: str, names: Sequence[str | None], engine: Engine, behind: int = 0) -> str:
    """A replacement in the engine's syntax: ``$1``, ``${1}``, ``$name`` and ``${name}`` are groups, empty if they do not
    exist, and ``$$`` is a dollar. A number without braces ends with its digits, as `_by_duckdb` has it, which knows no names.

    ``names`` has the names of the pattern's groups, None for those without; ``behind`` is the number of groups before
    the pattern's own.
    """
    numbers = {name: i for i, name in enumerate(names, 1) if name is not None}
    numbers |= {str(i): i for i in range(len(names) + 1)}
    out = []
    for literal, bare, braced, dollar in _REPLACEMENT.findall(text):
        if literal:
            escaped = literal.replace("\\", "\\\\")
            out.append(escaped)
        elif dollar:
            out.append("$" if engine is Engine.DUCKDB else "\\$")
        else:
            name = bare or braced
            number = numbers.get(name.lstrip("0") or "0" if name.isdecimal() else name)
            if number is not None:
                mark = "\\" if engine is Engine.DUCKDB else "$"
                out.append(f"{mark}{number + behind}")
    return "".join(out)


def _by_duckdb(replacement: Ast) -> Ast:
    """A non-constant replacement in DuckDB's syntax."""
    quoted = s.call("REPLACE", replacement, s.text("\\"), s.text("\\\\"))
    numbered = s.regexp_replace(quoted, "[$](?:[{]([0-9])[}]|([0-9]))", "\\\\\\1\\2", Engine.DUCKDB)
    return s.call("REPLACE", numbered, s.text("$$"), s.text("$"))


# --- splitting ---------------------------------------------------------------------------------------


def _pieces(text: Ast, pattern: Ast) -> Ast:
    """The pieces between matches, by DuckDB, without those that an empty match cuts off at an end or right after another match.

    DuckDB's own splitting knows nothing of what is before a piece: of an anchor, of the match before. So each match is
    put between marks first. A text with a mark of its own, which only bytes and documents can bring in, is left to it.
    """
    mark, given, parts = s.call("CHR", s.num(0)), s.variable("rp0"), s.variable("rp1")
    replacement = s.concat(mark, s.text("\\0"), mark)
    marked = s.call("REGEXP_REPLACE", given, pattern, replacement, s.text("g"))

    def empty(*places: int) -> Ast:
        return s.and_(
            s.gt(s.call("LEN", parts), s.num(1)),
            *(s.eq(s.call("LIST_EXTRACT", parts, s.num(at)), s.text("")) for at in places),
        )

    first = s.case((empty(1, 2), s.num(3)), otherwise=s.num(1))
    cut = s.and_(empty(-1, -2), s.gt(s.call("LEN", parts), first))
    last = s.case((cut, s.add(s.call("LEN", parts), s.num(-2))), otherwise=s.call("LEN", parts))
    between = s.call("LIST_SLICE", parts, first, last, s.num(2))
    made = s.let(s.call("STRING_SPLIT", marked, mark), "rp1", between, Engine.DUCKDB)
    plain = s.call("REGEXP_SPLIT_TO_ARRAY", given, pattern)
    marks = s.call("CONTAINS", given, mark)
    return s.let(text, "rp0", s.case((marks, plain), otherwise=made), Engine.DUCKDB)


def split(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    """The pieces between matches."""
    flags, text = known_flags(args, 2), args[0].ast
    if not is_known(args[1]):
        pieces = _by_row(engine, args[1], flags, lambda p: _pieces(text, p))
        return s.case((s.is_not_null(args[1].ast), pieces))
    pattern = valid_pattern(args[1])
    if pattern is None:
        return s.cast(s.null(), typ, engine)
    whole = spelled(pattern, flags, engine)
    if engine is Engine.DUCKDB:
        return _pieces(text, s.text(whole))
    refuse_nothing(pattern, flags)
    return s.call("SPLIT", text, s.text(whole), s.num(-1))


def _functions() -> list[ScalarFunc]:
    found = []
    for name, plain, result, value, allowed, further in (
        ("regexp_replace", 3, TEXT, replaced, FLAGS, (ErrorRule(writes_too_much, TOO_LARGE),)),
        ("regexp_match", 2, TEXTS, _match, FLAGS - {"g"}, ()),
        ("regexp_split_to_array", 2, TEXTS, split, FLAGS - {"g"}, ()),
    ):
        for flagged in (False, True):
            found.append(
                ScalarFunc(
                    key=f"{name}_flags" if flagged else name,
                    name=name,
                    args=(TEXT,) * (plain + flagged),
                    result=result,
                    value=value,
                    introduces_nulls=name == "regexp_match",
                    errors=(invalid(1), bad_flag(plain, allowed), *further)
                    if flagged
                    else (invalid(1),),
                )
            )
    return found


FUNCTIONS: tuple[ScalarFunc, ...] = (*_operators(), *_functions())
