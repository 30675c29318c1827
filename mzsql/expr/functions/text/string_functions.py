"""Text functions.

Promise: positions and lengths count characters. Results are PostgreSQL's, also where an engine's function differs: a substring that begins
before the text, negative counts in `left` and `right`, empty delimiters. A result above 100 MiB is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot import expressions as exp

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.comparison import ANY
from mzsql.expr.functions.declare import Ast, asts, engines, scalar
from mzsql.expr.functions.output.to_text import to_text
from mzsql.expr.functions.table import Engine, ErrorRule, ScalarFunc, Spelling, Sql
from mzsql.expr.functions.text.sizes import MAX_RESULT, TOO_LARGE, octets, total, within
from mzsql.repr.types import BOOLEAN, BYTEA, CHAR, INTEGER, TEXT, SqlType


def _native(function: str) -> Spelling:
    return asts(lambda *args: s.call(function, *args))


def _length(ast: Ast) -> Ast:
    return s.integer(s.call("LENGTH", ast))


def _substring(text: Ast, start: Ast, count: Ast | None) -> Ast:
    """The substring as in PostgreSQL, where positions before the first character exist but are empty."""
    known_start = s.known_integer(start)
    known_count = None if count is None else s.known_integer(count)
    if known_start is not None and (count is None or known_count is not None):
        begin = s.num(max(known_start, 1))
        if known_count is None:
            return s.call("SUBSTRING", text, begin)
        size = max(known_start + max(known_count, 0) - max(known_start, 1), 0)
        return s.call("SUBSTRING", text, begin, s.num(min(size, _LONGEST)))
    first = s.at_least(s.big(start), s.big(s.num(1)))
    # Bigints, so that the sum does not overflow.
    begin = s.integer(s.at_most(first, s.big(s.num(_LONGEST))))
    if count is None:
        return s.call("SUBSTRING", text, begin)
    end = s.add(s.big(start), s.big(s.at_least(count, s.num(0))))
    span = s.at_least(s.sub(end, first), s.big(s.num(0)))
    return s.call("SUBSTRING", text, begin, s.integer(s.at_most(span, s.big(s.num(_LONGEST)))))


#: The maximum number of characters in a text.
_LONGEST = 2**31 - 1


#: The only letter with an upper case in DuckDB but none in Unicode's simple mapping, and so none in PostgreSQL.
_SHARP_S = "ß"


def upper(text: Ast) -> Ast:
    """Upper case by Unicode's simple mapping: PostgreSQL's in the locale C.UTF-8."""
    pieces = s.call("STRING_SPLIT", text, s.text(_SHARP_S))
    capitals = s.call(
        "LIST_TRANSFORM", pieces, s.lambda_(("u0",), s.call("UPPER", s.variable("u0")))
    )
    joined = s.call("ARRAY_TO_STRING", capitals, s.text(_SHARP_S))
    has = s.gt(s.call("INSTR", text, s.text(_SHARP_S)), s.num(0))
    return s.case((has, joined), otherwise=s.call("UPPER", text))


def _reverse(text: Ast) -> Ast:
    """The characters reversed one by one, as in PostgreSQL; DuckDB's own function keeps combining marks after their letters."""
    letters = s.call("STRING_SPLIT", text, s.text(""))
    return s.call("ARRAY_TO_STRING", s.call("LIST_REVERSE", letters), s.text(""))


def _left(text: Ast, count: Ast) -> Ast:
    known = s.known_integer(count)
    if known is not None and known >= 0:
        return s.call("SUBSTRING", text, s.num(1), s.num(known))
    kept = s.at_least(s.integer(s.add(s.big(_length(text)), s.big(count))), s.num(0))
    size = s.case((s.lt(count, s.num(0)), kept), otherwise=count)
    return s.call("SUBSTRING", text, s.num(1), size)


def _right(text: Ast, count: Ast) -> Ast:
    length = s.big(_length(text))
    skipped = s.case(
        (s.lt(count, s.num(0)), s.sub(s.num(0), s.big(count))),
        otherwise=s.sub(length, s.big(count)),
    )
    begin = s.add(s.at_least(skipped, s.big(s.num(0))), s.num(1))
    # The least integer has no positive counterpart; as in PostgreSQL, nothing is left out.
    least = s.eq(s.big(count), s.num(-(2**31)))
    first = s.case((least, s.big(s.num(1))), otherwise=s.at_most(begin, s.big(s.num(_LONGEST))))
    return s.call("SUBSTRING", text, s.integer(first))


def _position(needle: Ast, text: Ast) -> Ast:
    return s.integer(s.call("INSTR", text, needle))


def _pad(function: str) -> Callable[..., Ast]:
    def spell(text: Ast, count: Ast, fill: Ast | None = None) -> Ast:
        filler = s.text(" ") if fill is None else fill
        # NULL where the result would be too large, which is a separate error, so that no giant text is built.
        size = s.case((s.lte(count, s.num(MAX_RESULT)), s.at_least(count, s.num(0))))
        padded = s.call(
            function, text, size, s.case((s.eq(filler, s.text("")), s.text(" ")), otherwise=filler)
        )
        if fill is None:
            return padded
        # An empty fill: only truncation remains.
        return s.case(
            (s.eq(fill, s.text("")), s.call("SUBSTRING", text, s.num(1), size)), otherwise=padded
        )

    return spell


def _repeated_size(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    text, count = (arg.ast for arg in args)
    return s.mul(s.big(count), octets(text, engine))


def _repeat(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    text, count = (arg.ast for arg in args)
    fits = s.lte(_repeated_size(engine, args, typ), s.num(MAX_RESULT))
    times = s.case((fits, s.at_least(count, s.num(0))))
    return s.call("REPEAT", text, s.big(times) if engine is Engine.DUCKDB else times)


def _replaced_size(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    """The size of `replace`'s result; matches are counted only if replacing at every byte would be too large."""
    text, old, new = (arg.ast for arg in args)
    size, of_old, of_new = (octets(ast, engine) for ast in (text, old, new))
    without = octets(s.call("REPLACE", text, old, s.text("")), engine)
    times = s.int_div(s.sub(size, without), s.nullif(of_old, s.big(s.num(0))))
    grown = s.add(size, s.mul(times, s.sub(of_new, of_old)))
    # Nothing is replaced, or the text does not grow.
    same = s.or_(s.eq(of_old, s.big(s.num(0))), s.lte(of_new, of_old))
    small = s.lte(s.mul(size, of_new), s.num(MAX_RESULT))
    return s.case((s.or_(same, small), s.big(s.num(0))), otherwise=grown)


def _replace(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    text, old, new = (arg.ast for arg in args)
    fits = s.lte(_replaced_size(engine, args, typ), s.num(MAX_RESULT))
    # A NULL argument instead of a branch, because DuckDB evaluates constants even in branches not taken.
    return s.case(
        (s.eq(old, s.text("")), text), otherwise=s.call("REPLACE", text, old, s.case((fits, new)))
    )


def _split_part(text: Ast, delimiter: Ast, part: Ast) -> Ast:
    first = s.or_(s.eq(part, s.num(1)), s.eq(part, s.num(-1)))
    # With an empty delimiter the whole text is one field.
    whole = s.case((first, text), otherwise=s.text(""))
    return s.case(
        (s.or_(s.is_null(delimiter), s.is_null(part)), s.string(s.null())),
        (s.eq(text, s.text("")), s.text("")),
        (s.eq(delimiter, s.text("")), whole),
        otherwise=s.call("SPLIT_PART", text, delimiter, s.nullif(part, s.num(0))),
    )


def _trim(function: str) -> dict[int, Spelling]:
    """The spellings by number of arguments: trimming blanks, or the given characters."""

    def spaces(_engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        return s.call(function, args[0].ast)

    def characters(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        text, chars = (arg.ast for arg in args)
        if engine is Engine.DUCKDB:
            return s.call(function, text, chars)
        name = {"TRIM": "BTRIM"}.get(function, function)
        # Spark's LTRIM and RTRIM take the characters first, its BTRIM last.
        return s.call(name, text, chars) if name == "BTRIM" else s.call(name, chars, text)

    return {1: spaces, 2: characters}


_DANGLING = "(?s)^([^\\\\]|\\\\.)*\\\\$"


def _like(case_insensitive: bool) -> Spelling:
    def value(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        text, pattern = (arg.ast for arg in args)
        if case_insensitive:
            text, pattern = s.call("LOWER", text), _lower(pattern)
        like = exp.Like(this=text.copy(), expression=_sound(pattern, engine))
        return exp.Paren(this=exp.Escape(this=like, expression=exp.Literal.string("\\")))

    return value


def _lower(pattern: Ast) -> Ast:
    if isinstance(pattern, exp.Literal):
        return exp.Literal.string(pattern.name.lower())
    return s.call("LOWER", pattern)


def _literal_text(ast: Ast) -> str | None:
    """The text of a string literal, possibly inside casts; None for anything else."""
    while isinstance(ast, exp.Cast | exp.Paren):
        ast = ast.this
    return ast.name if isinstance(ast, exp.Literal) and ast.is_string else None


def _sound(pattern: Ast, engine: Engine) -> Ast:
    """The pattern with the escapes that `sound_pattern` keeps: Spark's LIKE refuses others, DuckDB's a dangling one."""
    known = _literal_text(pattern)
    if known is not None:
        return exp.Literal.string(sound_pattern(known))
    pairs = "(?s)(\\\\[%_\\\\])|\\\\(.)"
    spark = engine is Engine.SPARK
    replaced = s.regexp_replace(pattern, pairs, "$1$2" if spark else "\\1\\2", engine)
    dangling = s.matches(pattern, _DANGLING, engine)
    return s.case((dangling, s.concat(replaced, s.text("\\"))), otherwise=replaced)


def _dangles(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    known = _literal_text(args[1].ast)
    if known is not None:
        body = known.rstrip("\\")
        return s.boolean((len(known) - len(body)) % 2 == 1)
    return s.matches(args[1].ast, _DANGLING, engine)


def sound_pattern(pattern: str) -> str:
    """An equivalent LIKE pattern that escapes only ``%``, ``_`` and the backslash."""
    out, chars = [], iter(pattern)
    for char in chars:
        if char != "\\":
            out.append(char)
            continue
        escaped = next(chars, None)
        if escaped is None:
            out.append("\\\\")
        else:
            out.append(f"\\{escaped}" if escaped in "%_\\" else escaped)
    return "".join(out)


def _md5(_engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    return s.call("MD5", args[0].ast)


def _as_text(arg: Sql, engine: Engine) -> Ast:
    if arg.typ.kind == "boolean":
        # Inside other values PostgreSQL prints a boolean as t or f.
        return s.case((arg.ast, s.text("t")), (s.not_(arg.ast), s.text("f")))
    return to_text(arg.ast, arg.typ, engine)


def _concat(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    """The concatenated texts of values of any type, without NULLs."""
    return s.concat(*(s.coalesce(_as_text(arg, engine), s.text("")) for arg in args))


def _concat_ws(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    """The texts of values of any type with a separator in between; NULL values are skipped, a NULL separator gives NULL."""
    separator, *values = args
    return s.call("CONCAT_WS", separator.ast, *(_as_text(value, engine) for value in values))


def _texts(count: int) -> tuple[SqlType, ...]:
    return (TEXT,) * count


def _shown_size(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    """The bytes of the texts of values of any type."""
    return total([_as_text(arg, engine) for arg in args], engine)


def _separated_size(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    """The size of `concat_ws`'s result, with one separator per value."""
    separator, *values = args
    separators = s.mul(octets(separator.ast, engine), s.num(len(values)))
    return s.add(total([_as_text(value, engine) for value in values], engine), separators)


_PAD_TOO_LONG = ErrorRule(asts(lambda _text, count, *_: s.gt(count, s.num(MAX_RESULT))), TOO_LARGE)
_PAD_NEGATIVE = ErrorRule(
    asts(lambda _text, count, *_: s.lt(count, s.num(0))), "length must be nonnegative"
)


def _overlay(text: Ast, new: Ast, start: Ast, count: Ast | None = None) -> Ast:
    """The text with ``count`` characters replaced, by default as many as the new ones."""
    size = s.big(_length(new)) if count is None else s.big(count)
    head = s.call(
        "SUBSTRING", text, s.num(1), s.integer(s.sub(s.at_least(start, s.num(1)), s.num(1)))
    )
    behind = s.at_least(s.add(s.big(start), size), s.big(s.num(1)))
    tail = s.call("SUBSTRING", text, s.integer(s.at_most(behind, s.big(s.num(_LONGEST)))))
    return s.concat(head, new, tail)


_BEFORE_FIRST = ErrorRule(
    asts(lambda _text, _new, start, *_: s.lte(start, s.num(0))),
    "negative substring length not allowed",
)
_NEGATIVE_LENGTH = ErrorRule(
    asts(lambda _text, _start, count: s.lt(count, s.num(0))),
    "negative substring length not allowed",
)
_LIKE_ESCAPE = ErrorRule(_dangles, "unterminated escape sequence in LIKE")
_FIELD_POSITION = ErrorRule(
    asts(lambda _text, _delimiter, part: s.eq(part, s.num(0))),
    "field position must be greater than zero",
)


def _substrings() -> list[ScalarFunc]:
    functions = []
    for name in ("substring", "substr"):
        # Materialize prints both as substr.
        prefix = "substr" if name == "substring" else "substr_short"
        functions += [
            scalar(
                f"{prefix}_from",
                name,
                (TEXT, INTEGER),
                TEXT,
                asts(lambda text, start: _substring(text, start, None)),
                explain="substr({0}, {1})",
            ),
            scalar(
                f"{prefix}_from_for",
                name,
                (TEXT, INTEGER, INTEGER),
                TEXT,
                asts(_substring),
                _NEGATIVE_LENGTH,
                explain="substr({0}, {1}, {2})",
            ),
        ]
    return functions


def _trims() -> list[ScalarFunc]:
    functions = []
    for name, function in (
        ("btrim", "TRIM"),
        ("ltrim", "LTRIM"),
        ("rtrim", "RTRIM"),
        ("trim", "TRIM"),
    ):
        for count, value in _trim(function).items():
            key = name if count == 1 else f"{name}_characters"
            functions.append(scalar(key, name, _texts(count), TEXT, value))
    return functions


def _pads() -> list[ScalarFunc]:
    functions = []
    for name in ("lpad", "rpad"):
        value = asts(_pad(name.upper()))
        rules = (_PAD_NEGATIVE, _PAD_TOO_LONG)
        functions.append(scalar(name, name, (TEXT, INTEGER), TEXT, value, *rules))
        fill = (TEXT, INTEGER, TEXT)
        functions.append(scalar(f"{name}_fill", name, fill, TEXT, value, *rules))
    return functions


def _likes() -> list[ScalarFunc]:
    functions = []
    for name, operator, insensitive in (("like", "~~", False), ("ilike", "~~*", True)):
        functions.append(
            scalar(
                name,
                operator,
                _texts(2),
                BOOLEAN,
                _like(insensitive),
                _LIKE_ESCAPE,
                explain=f"({{0}} {name} {{1}})",
            )
        )
        # A char's blanks count, which a cast to text would remove.
        functions.append(
            scalar(
                f"{name}_char",
                operator,
                (CHAR, TEXT),
                BOOLEAN,
                _like(insensitive),
                _LIKE_ESCAPE,
                explain=f"(padchar({{0}}) {name} {{1}})",
            )
        )
    return functions


def _like_escape(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    """A LIKE pattern with a backslash as its escape character, instead of another one or none.

    What follows the old escape character, at the end nothing, follows a backslash; a backslash elsewhere becomes two.
    """
    pattern, letter = (arg.ast for arg in args)
    found = s.concat(s.text("(?s)\\Q"), letter, s.text("\\E(.|\\z)|(\\\\)"))
    # A group that has no part in a match is empty.
    by, flags = ("\\\\$1$2", []) if engine is Engine.SPARK else ("\\\\\\1\\2", [s.text("g")])
    replaced = s.call("REGEXP_REPLACE", pattern, found, s.text(by), *flags)
    return s.case(
        (s.eq(letter, s.text("\\")), pattern),
        (s.eq(letter, s.text("")), s.call("REPLACE", pattern, s.text("\\"), s.text("\\\\"))),
        otherwise=replaced,
    )


_ESCAPE_LETTER = ErrorRule(
    asts(lambda _pattern, letter: s.gt(s.call("LENGTH", letter), s.num(1))), "invalid escape string"
)


def _utf8_length(ast: Ast) -> Ast:
    return s.integer(s.call("OCTET_LENGTH", ast))


def _lengths() -> list[ScalarFunc]:
    octets = engines(spark=_utf8_length, duckdb=lambda ast: s.integer(s.call("STRLEN", ast)))
    bits = engines(
        spark=lambda ast: s.mul(_utf8_length(ast), s.num(8)),
        duckdb=lambda ast: s.integer(s.call("BIT_LENGTH", ast)),
    )
    functions = [
        scalar("char_length", name, (TEXT,), INTEGER, asts(_length), explain="char_length({0})")
        if name == "char_length"
        else scalar(
            f"char_length_{name}", name, (TEXT,), INTEGER, asts(_length), explain="char_length({0})"
        )
        for name in ("char_length", "length", "character_length")
    ]
    functions.append(scalar("octet_length", "octet_length", (TEXT,), INTEGER, octets))
    functions.append(scalar("octet_length_char", "octet_length", (CHAR,), INTEGER, octets))
    functions.append(scalar("bit_length", "bit_length", (TEXT,), INTEGER, bits))
    for name in ("length", "octet_length"):
        bytes_length = scalar(f"{name}_bytea", name, (BYTEA,), INTEGER, asts(_utf8_length))
        functions.append(bytes_length)
    return functions


FUNCTIONS: tuple[ScalarFunc, ...] = (
    scalar(
        "concat_text",
        "||",
        _texts(2),
        TEXT,
        asts(s.concat),
        within(lambda engine, args, _: total([arg.ast for arg in args], engine)),
        explain="({0} || {1})",
    ),
    *(
        scalar(name, name, (TEXT,), TEXT, value)
        for name, value in (
            ("upper", asts(upper)),
            ("lower", _native("LOWER")),
            ("reverse", asts(_reverse)),
        )
    ),
    *_substrings(),
    *_trims(),
    *_pads(),
    *_likes(),
    scalar(
        "like_escape",
        "like_escape",
        _texts(2),
        TEXT,
        _like_escape,
        _ESCAPE_LETTER,
        within(lambda engine, args, _: s.mul(s.num(2), octets(args[0].ast, engine))),
    ),
    *_lengths(),
    scalar("left", "left", (TEXT, INTEGER), TEXT, asts(_left)),
    scalar("right", "right", (TEXT, INTEGER), TEXT, asts(_right)),
    scalar("position", "position", _texts(2), INTEGER, asts(_position)),
    scalar(
        "strpos", "strpos", _texts(2), INTEGER, asts(lambda text, needle: _position(needle, text))
    ),
    scalar("replace", "replace", _texts(3), TEXT, _replace, within(_replaced_size)),
    scalar("repeat", "repeat", (TEXT, INTEGER), TEXT, _repeat, within(_repeated_size)),
    scalar(
        "split_part", "split_part", (TEXT, TEXT, INTEGER), TEXT, asts(_split_part), _FIELD_POSITION
    ),
    scalar(
        "starts_with",
        "starts_with",
        _texts(2),
        BOOLEAN,
        engines(
            spark=lambda text, prefix: s.call("STARTSWITH", text, prefix),
            duckdb=lambda text, prefix: s.call("STARTS_WITH", text, prefix),
        ),
    ),
    scalar("translate", "translate", _texts(3), TEXT, _native("TRANSLATE")),
    scalar("overlay", "overlay", (TEXT, TEXT, INTEGER), TEXT, asts(_overlay), _BEFORE_FIRST),
    scalar(
        "overlay_for",
        "overlay",
        (TEXT, TEXT, INTEGER, INTEGER),
        TEXT,
        asts(_overlay),
        _BEFORE_FIRST,
    ),
    scalar("ascii", "ascii", (TEXT,), INTEGER, asts(lambda ast: s.integer(s.call("ASCII", ast)))),
    scalar("md5", "md5", (TEXT,), TEXT, _md5),
    ScalarFunc(
        key="concat",
        name="concat",
        args=(ANY,),
        variadic=ANY,
        result=TEXT,
        value=_concat,
        errors=(within(_shown_size),),
        strict=False,
    ),
    ScalarFunc(
        key="concat_ws",
        name="concat_ws",
        args=(TEXT, ANY),
        variadic=ANY,
        result=TEXT,
        value=_concat_ws,
        errors=(within(_separated_size),),
        strict=False,
        introduces_nulls=False,
    ),
)
