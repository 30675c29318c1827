"""Parsing of arrays, lists and maps from text, in SQL.

Promise: the text that PostgreSQL and Materialize print for a value parses to this value, per row, in DuckDB: one
pattern splits the text, the pieces become a JSON document, and the elements' casts parse its parts. An invalid text is
an error that quotes it; an element that cannot be parsed gives its own error. A constant is examined more closely in
planning (`mzsql.frontend.scalar.container_literals`), so its errors name the place. The text of a column must be an
array of one dimension.
"""

from __future__ import annotations

from collections.abc import Sequence

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.cast.declared import declared
from mzsql.expr.functions.container.casts import element_cast, element_error
from mzsql.expr.functions.container.maps import map_of_entries
from mzsql.expr.functions.declare import Ast, duckdb_only, of
from mzsql.expr.functions.json import documents as j
from mzsql.expr.functions.table import Engine, ErrorRule, ScalarFunc, Sql
from mzsql.repr.types import TEXT, SqlType

_KINDS = ("array", "list", "map")
_QUOTED = '"(?:[^"\\\\]|\\\\.)*"'


def _patterns(special: str) -> tuple[str, str]:
    """The pattern of a piece, and that of a whole text, where unquoted words contain none of ``special``."""
    edge = f"(?:[^{special}\\s]|\\\\.)"
    word = f"{edge}(?:(?:[^{special}]|\\\\.)*{edge})?"
    arrow = "=>|" if "=" in special else ""
    piece = f"(?s){_QUOTED}|{arrow}[{{}},]|{word}"
    return piece, f"(?s)^(?:\\s|{_QUOTED}|{arrow}[{{}},]|{edge})*$"


_PLAIN = _patterns('{},"\\\\')
_MAPPED = _patterns('{},"\\\\=>')


def _has_map(typ: SqlType | None) -> bool:
    return typ is not None and typ.kind in _KINDS and (typ.kind == "map" or _has_map(typ.element))


def _document(text: Ast, typ: SqlType) -> Ast:
    """The text as a JSON document of arrays of texts. If the type contains a map, every element is an array; a map's of
    key and value.
    """
    mapped = _has_map(typ)
    piece = s.variable("tj0")
    pieces = s.call("REGEXP_EXTRACT_ALL", text, s.text((_MAPPED if mapped else _PLAIN)[0]))
    inside = s.call("SUBSTRING", piece, s.num(2), s.sub(s.call("LENGTH", piece), s.num(2)))

    def string(ast: Ast) -> Ast:
        return j.quoted(s.regexp_replace(ast, "(?s)\\\\(.)", "\\1", Engine.DUCKDB))

    signs = {"{": "[[", "}": "]]", ",": "],[", "=>": ","} if mapped else {"{": "[", "}": "]"}
    branches = [(s.eq(piece, s.text(sign)), s.text(json)) for sign, json in signs.items()]
    made = s.case(
        *branches,
        (s.eq(piece, s.text(",")), s.text(",")),
        (s.eq(s.call("LEFT", piece, s.num(1)), s.text('"')), string(inside)),
        (s.eq(s.call("UPPER", piece), s.text("NULL")), s.text("null")),
        otherwise=string(piece),
    )
    shown = s.call("LIST_TRANSFORM", pieces, s.lambda_(("tj0",), made))
    joined = s.call("ARRAY_TO_STRING", shown, s.text(""))
    # DuckDB's JSON parser accepts a trailing comma, which here is a missing element.
    bare = s.regexp_replace(text, f"(?s){_QUOTED}|\\\\.", "x", Engine.DUCKDB)
    sound = s.and_(
        s.not_(s.matches(bare, ",\\s*[}]", Engine.DUCKDB)),
        s.matches(text, (_MAPPED if mapped else _PLAIN)[1], Engine.DUCKDB),
        s.matches(text, "^\\s*[{]", Engine.DUCKDB),
        s.call("JSON_VALID", joined),
    )
    return s.case((sound, joined))


def _parts(node: Ast, mapped: bool, name: str) -> Ast:
    """The elements or entries directly inside a value."""
    parts = j.elements(node)
    if not mapped:
        return parts
    filled = s.lambda_((name,), s.neq(s.variable(name), s.text("[]")))
    return s.call("LIST_FILTER", parts, filled)


def _nth(part: Ast, mapped: bool, n: int) -> Ast:
    """The key or value of an entry; an element itself."""
    return s.string(s.call("JSON_EXTRACT", part, s.text(f"$[{n}]"))) if mapped else part


def _value(node: Ast, typ: SqlType, mapped: bool, depth: int) -> Ast:
    """The value of a part of the document."""
    if typ.kind not in _KINDS or typ.element is None:
        return element_cast(j.shown(node), TEXT, typ, Engine.DUCKDB)
    name = f"tv{depth}"
    part, parts = s.variable(name), _parts(node, mapped, f"tf{depth}")
    if typ.kind != "map":
        inner = _value(_nth(part, mapped, 0), typ.element, mapped, depth + 1)
        return s.call("LIST_TRANSFORM", parts, s.lambda_((name,), inner))
    entry = s.struct(
        key=j.shown(_nth(part, True, 0)),
        value=s.cast(
            _value(_nth(part, True, 1), typ.element, mapped, depth + 1), typ.element, Engine.DUCKDB
        ),
    )
    entries = s.call("LIST_TRANSFORM", parts, s.lambda_((name,), entry))
    made = map_of_entries(s.variable(f"tm{depth}"), typ, Engine.DUCKDB)
    there = s.case((s.is_not_null(s.variable(f"tm{depth}")), made))
    return s.let(entries, f"tm{depth}", there, Engine.DUCKDB)


def _malformed(node: Ast, typ: SqlType, mapped: bool, depth: int) -> Ast:
    """Whether a part of the document lacks the type's shape."""
    if typ.kind not in _KINDS or typ.element is None:
        return j.is_kind(node, "ARRAY")
    name = f"tw{depth}"
    part = s.variable(name)
    wrong = _malformed(
        _nth(part, mapped, 1 if typ.kind == "map" else 0), typ.element, mapped, depth + 1
    )
    if mapped:
        size = s.call("JSON_ARRAY_LENGTH", part)
        shape = s.neq(size, s.num(2 if typ.kind == "map" else 1))
        if typ.kind == "map":
            shape = s.or_(shape, s.not_(j.is_kind(_nth(part, True, 0), "VARCHAR")))
        only = s.and_(s.eq(part, s.text("[]")), s.eq(s.call("JSON_ARRAY_LENGTH", node), s.num(1)))
        wrong = s.and_(s.not_(only), s.or_(s.coalesce(shape, s.boolean(True)), wrong))
    found = s.call(
        "LIST_FILTER", j.elements(node), s.lambda_((name,), s.coalesce(wrong, s.boolean(False)))
    )
    shapeless = s.not_(s.or_(j.is_kind(node, "ARRAY"), j.is_kind(node, "NULL")))
    return s.or_(shapeless, s.coalesce(s.gt(s.call("LEN", found), s.num(0)), s.boolean(False)))


def _failure(node: Ast, typ: SqlType, mapped: bool, depth: int) -> Ast | None:
    """The error of the first element that does not parse; None if all can."""
    if typ.kind not in _KINDS or typ.element is None:
        text = j.shown(node)
        told = element_error(text, TEXT, typ, Engine.DUCKDB)
        return None if told is None else s.case((s.is_not_null(text), told))
    name = f"tx{depth}"
    part = s.variable(name)
    inner = _failure(
        _nth(part, mapped, 1 if typ.kind == "map" else 0), typ.element, mapped, depth + 1
    )
    if inner is None:
        return None
    told = s.call("LIST_TRANSFORM", _parts(node, mapped, f"ty{depth}"), s.lambda_((name,), inner))
    there = s.lambda_((f"{name}m",), s.is_not_null(s.variable(f"{name}m")))
    return s.call("LIST_EXTRACT", s.call("LIST_FILTER", told, there), s.num(1))


def _over(args: Sequence[Sql], typ: SqlType, engine: Engine, body: Ast, name: str) -> Ast:
    if engine is Engine.SPARK:
        raise duckdb_only(f"reading {'an' if typ.kind == 'array' else 'a'} {typ.kind} from a text")
    return s.let(_document(args[0].ast, typ), name, body, engine)


def _read(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    node = s.variable("tr0")
    value = s.case((s.is_not_null(node), _value(node, typ, _has_map(typ), 0)))
    return _over(args, typ, engine, value, "tr0")


def _broken(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    node = s.variable("tr1")
    wrong = s.or_(s.is_null(node), _malformed(node, typ, _has_map(typ), 0))
    return _over(args, typ, engine, s.coalesce(wrong, s.boolean(True)), "tr1")


def _syntax(detail: Ast, text: Ast, typ: SqlType) -> Ast:
    lead = s.text(f"invalid input syntax for type {typ.kind}: ")
    return s.concat(lead, detail, s.text(': "'), text, s.text('"'))


def _broken_message(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    text = args[0].ast
    start = s.call("LEFT", text, s.num(1))
    nested = (s.matches(text, "^\\s*[{].*[{]", engine), s.text(_NESTED[typ.kind]))
    if typ.kind == "array":
        bounds = s.text("Specifying array lower bounds is not supported")
        branches = [
            (s.eq(start, s.text("[")), bounds),
            (
                s.not_(s.matches(text, "^\\s*[{]", engine)),
                s.text('Array value must start with "{"'),
            ),
        ]
    else:
        found = s.case((s.eq(text, s.text("")), s.text("empty string")), otherwise=start)
        opening = s.concat(s.text("expected '{', found "), found)
        branches = [(s.not_(s.matches(text, "^\\s*[{]", engine)), opening)]
    if typ.element is None or typ.element.kind not in _KINDS:
        branches.append(nested)
    return _syntax(s.case(*branches, otherwise=s.text("malformed literal")), text, typ)


#: The errors for nested braces, where the type has none.
_NESTED = {
    "array": "an array of several dimensions is only read from a constant",
    "list": (
        "unescaped '{' at beginning of element; perhaps you want a nested list, "
        "e.g. '{a}'::text list list"
    ),
    "map": (
        "unescaped '{' at beginning of value; perhaps you want a nested map, "
        "e.g. '{a=>{a=>1}}'::map[text=>map[text=>int]]"
    ),
}


def _told(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    node = s.variable("tr2")
    failure = _failure(node, typ, _has_map(typ), 0)
    body = s.cast(s.null(), of("text"), engine) if failure is None else failure
    return _over(args, typ, engine, body, "tr2")


def _refused(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    if _failure(s.variable("tr2"), typ, _has_map(typ), 0) is None:
        return s.boolean(False)
    return s.is_not_null(_told(engine, args, typ))


def _refused_message(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    return _syntax(_told(engine, args, typ), args[0].ast, typ)


FUNCTIONS: tuple[ScalarFunc, ...] = declared(
    *(
        ScalarFunc(
            key=f"text_to_{kind}",
            name="cast",
            args=(TEXT,),
            result=of(kind),
            value=_read,
            errors=(ErrorRule(_broken, _broken_message), ErrorRule(_refused, _refused_message)),
        )
        for kind in _KINDS
    )
)
