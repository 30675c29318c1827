"""SQL identifiers and literals as texts: quoting and parsing.

Promise: as in PostgreSQL's functions with these names; keywords are quoted too.
"""

from __future__ import annotations

from collections.abc import Sequence

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.comparison import ANY
from mzsql.expr.functions.declare import Ast, scalar
from mzsql.expr.functions.output.to_text import to_text
from mzsql.expr.functions.table import Engine, ErrorRule, ScalarFunc, Sql
from mzsql.repr.types import BOOLEAN, TEXT, SqlType

#: PostgreSQL's words that need quotes as names.
KEYWORDS = frozenset(
    """
    all analyse analyze and any array as asc asymmetric authorization between bigint binary bit boolean both case cast char character
    check coalesce collate collation column concurrently constraint create cross current_catalog current_date current_role
    current_schema current_time current_timestamp current_user dec decimal default deferrable desc distinct do else end except exists
    extract false fetch float for foreign freeze from full grant greatest group grouping having ilike in initially inner inout int
    integer intersect interval into is isnull join json_array json_arrayagg json_object json_objectagg lateral leading least left like
    limit localtime localtimestamp national natural nchar none normalize not notnull null nullif numeric offset on only or order out
    outer overlaps overlay placing position precision primary real references returning right row select session_user setof similar
    smallint some substring symmetric system_user table tablesample then time timestamp to trailing treat trim true union unique user
    using values varchar variadic verbose when where window with xmlattributes xmlconcat xmlelement xmlexists xmlforest xmlnamespaces
    xmlparse xmlpi xmlroot xmlserialize xmltable
    """.split()  # noqa: SIM905
)
_CAPITALS, _SMALL = "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz"


def _quote_ident(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    name = args[0].ast
    plain = s.matches(name, "^[a-z_][a-z0-9_]*$", engine)
    words = "^(" + "|".join(sorted(KEYWORDS)) + ")$"
    bare = s.and_(plain, s.not_(s.matches(name, words, engine)))
    doubled = s.call("REPLACE", name, s.text('"'), s.text('""'))
    return s.case((bare, name), otherwise=s.concat(s.text('"'), doubled, s.text('"')))


def _quoted(text: Ast) -> Ast:
    """The text as a literal; with a backslash, as E'…'."""
    doubled = s.call("REPLACE", text, s.text("'"), s.text("''"))
    escaped = s.call("REPLACE", doubled, s.text("\\"), s.text("\\\\"))
    special = s.gt(s.call("INSTR", text, s.text("\\")), s.num(0))
    return s.case(
        (special, s.concat(s.text("E'"), escaped, s.text("'"))),
        otherwise=s.concat(s.text("'"), doubled, s.text("'")),
    )


def _quote_literal(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    return _quoted(to_text(args[0].ast, args[0].typ, engine))


def _quote_nullable(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    return s.coalesce(_quote_literal(engine, args, typ), s.text("NULL"))


# --- names of several parts ----------------------------------------------------------------------------

_SPACE = "[ \\t\\n\\r\\f\\x0b]*"
_PART = '(?:"(?:[^"]|"")+"|[A-Za-z_\\x{80}-\\x{10FFFF}][A-Za-z0-9_$\\x{80}-\\x{10FFFF}]*)'
_WHOLE = f"^{_SPACE}{_PART}(?:{_SPACE}[.]{_SPACE}{_PART})*{_SPACE}"


def _lead(text: Ast) -> Ast:
    """The name at the start of the text; empty if there is none."""
    return s.regexp_group(text, _WHOLE, 0)


def _rest(text: Ast) -> Ast:
    return s.call("SUBSTRING", text, s.integer(s.add(s.call("LENGTH", _lead(text)), s.num(1))))


def _is_name(args: Sequence[Sql]) -> Ast:
    """Whether the text begins with a name and, if strict, contains nothing else."""
    text, rest = args[0].ast, _rest(args[0].ast)
    found = s.neq(_lead(text), s.text(""))
    next_ = s.call("SUBSTRING", rest, s.num(1), s.num(1))
    # A part must follow a dot, and a quote must end.
    open_ = s.or_(
        s.eq(next_, s.text(".")),
        s.and_(s.eq(next_, s.text('"')), s.eq(s.call("RIGHT", _lead(text), s.num(1)), s.text('"'))),
    )
    done = s.eq(rest, s.text(""))
    lenient = s.not_(args[1].ast) if len(args) > 1 else s.boolean(False)
    return s.and_(found, s.or_(done, s.and_(lenient, s.not_(open_))))


def _parse_ident(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    part = s.variable("pi0")
    inner = s.call("SUBSTRING", part, s.num(2), s.integer(s.sub(s.call("LENGTH", part), s.num(2))))
    shown = s.case(
        (
            s.eq(s.call("SUBSTRING", part, s.num(1), s.num(1)), s.text('"')),
            s.call("REPLACE", inner, s.text('""'), s.text('"')),
        ),
        otherwise=s.call("TRANSLATE", part, s.text(_CAPITALS), s.text(_SMALL)),
    )
    more = [s.num(0)] if engine is Engine.SPARK else []
    parts = s.call("REGEXP_EXTRACT_ALL", _lead(args[0].ast), s.text(_PART), *more)
    made = s.mapped(parts, "pi0", shown, engine)
    return s.case((_is_name(args), s.cast(made, typ, engine)))


_NO_NAME = ErrorRule(
    lambda _engine, args, _typ: s.not_(_is_name(args)),
    lambda _engine, args, _typ: s.concat(
        s.text('string is not a valid identifier: "'), args[0].ast, s.text('"')
    ),
)
_TEXTS = SqlType("array", element=TEXT)

FUNCTIONS: tuple[ScalarFunc, ...] = (
    scalar("quote_ident", "quote_ident", (TEXT,), TEXT, _quote_ident),
    scalar("quote_literal", "quote_literal", (ANY,), TEXT, _quote_literal),
    ScalarFunc(
        key="quote_nullable",
        name="quote_nullable",
        args=(ANY,),
        result=TEXT,
        value=_quote_nullable,
        strict=False,
    ),
    scalar("parse_ident", "parse_ident", (TEXT,), _TEXTS, _parse_ident, _NO_NAME),
    scalar("parse_ident_strict", "parse_ident", (TEXT, BOOLEAN), _TEXTS, _parse_ident, _NO_NAME),
)
