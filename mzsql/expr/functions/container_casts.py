"""Casts of what holds other values: element by element, and to text.

Promise: an array, list or map becomes one of other elements exactly if its elements have a cast; the first element that fails says why. The
text is PostgreSQL's (of lists and maps Materialize's): elements are quoted where they would be read differently, NULL is a bare word, and
inside another value a boolean is one letter.
"""

from __future__ import annotations

from collections.abc import Sequence

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.casts import FUNCTIONS as PLAIN_CASTS
from mzsql.expr.functions.casts import find_cast
from mzsql.expr.functions.comparison import ANY
from mzsql.expr.functions.declare import Ast, of
from mzsql.expr.functions.table import Engine, ErrorRule, ScalarFunc, Sql
from mzsql.expr.functions.texts import to_text
from mzsql.repr.errors import Unsupported
from mzsql.repr.types import TEXT, SqlType

_PLAIN = {func.key: func for func in PLAIN_CASTS}


def duckdb_only(what: str) -> Unsupported:
    """What to raise where a spelling for Spark is asked and there is none."""
    return Unsupported(
        f"{what} cannot be maintained by a dataflow yet",
        hint="A SELECT of it runs; so does one over a view that is not materialized.",
    )


# --- element by element --------------------------------------------------------------------------


def _variable(typ: SqlType, lead: str) -> str:
    """A lambda's parameter that no lambda further in has."""
    depth = 0
    while typ.element is not None:
        depth, typ = depth + 1, typ.element
    return f"{lead}{depth}"


def _chain(source: SqlType, target: SqlType) -> list[tuple[ScalarFunc, SqlType]]:
    """The casts from one type to the other, with the type of each one's result."""
    from mzsql.expr.functions import scalar  # noqa: PLC0415  the table is made of modules like this one

    steps: list[tuple[ScalarFunc, SqlType]] = []
    typ = source
    keys = find_cast(source, target, "explicit") or ()
    for i, key in enumerate(keys):
        func = _PLAIN.get(key) or scalar(key)
        typ = target if i == len(keys) - 1 else func.result_type([typ])
        steps.append((func, typ))
    return steps


def element_cast(ast: Ast, source: SqlType, target: SqlType, engine: Engine) -> Ast:
    """A value cast; anything where it fails."""
    typ = source
    for func, result in _chain(source, target):
        made = func.value(engine, [Sql(ast, typ)], result)
        ast = (
            s.try_cast(made, result, engine)
            if result.kind == "numeric"
            else s.cast(made, result, engine)
        )
        typ = result
    return ast.copy()


def element_error(ast: Ast, source: SqlType, target: SqlType, engine: Engine) -> Ast | None:
    """The message with which a cast fails; NULL where it does not; None where it never does."""
    from mzsql.expr.spell import rules_error  # noqa: PLC0415  it is built on the table of functions

    found: list[Ast] = []
    typ = source
    for func, result in _chain(source, target):
        failure = rules_error(func.errors, [Sql(ast, typ)], result, engine, strict=func.strict)
        if failure is not None:
            found.append(failure)
        made = func.value(engine, [Sql(ast, typ)], result)
        ast = (
            s.try_cast(made, result, engine)
            if result.kind == "numeric"
            else s.cast(made, result, engine)
        )
        typ = result
    return s.coalesce(*found) if found else None


def _elements(typ: SqlType) -> SqlType:
    return typ.element or TEXT


def _each(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    source, target = _elements(args[0].typ), _elements(typ)
    name = _variable(source, "ec")
    body = element_cast(s.variable(name), source, target, engine)
    if args[0].typ.kind == "map":
        return _each_value(args[0].ast, name, body, typ, engine)
    mapped = "TRANSFORM" if engine is Engine.SPARK else "LIST_TRANSFORM"
    return s.call(mapped, args[0].ast, s.lambda_((name,), body))


def _each_value(map_: Ast, name: str, body: Ast, typ: SqlType, engine: Engine) -> Ast:
    if engine is Engine.SPARK:
        return s.call("TRANSFORM_VALUES", map_, s.lambda_((f"{name}k", name), body))
    values = s.call("LIST_TRANSFORM", s.call("MAP_VALUES", map_), s.lambda_((name,), body))
    made = s.cast(s.call("MAP", s.call("MAP_KEYS", map_), values), typ, engine)
    return s.case((s.is_not_null(map_), made))


def _messages(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast | None:
    """The first message of an element that fails; NULL where none does."""
    source, target = _elements(args[0].typ), _elements(typ)
    name = _variable(source, "ee")
    failure = element_error(s.variable(name), source, target, engine)
    if failure is None:
        return None
    spark = engine is Engine.SPARK
    values = s.call("MAP_VALUES", args[0].ast) if args[0].typ.kind == "map" else args[0].ast
    found = s.call("TRANSFORM" if spark else "LIST_TRANSFORM", values, s.lambda_((name,), failure))
    there = s.lambda_((f"{name}m",), s.is_not_null(s.variable(f"{name}m")))
    kept = s.call("FILTER" if spark else "LIST_FILTER", found, there)
    return s.call("TRY_ELEMENT_AT" if spark else "LIST_EXTRACT", kept, s.num(1))


def _fails(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    message = _messages(engine, args, typ)
    return s.boolean(False) if message is None else s.is_not_null(message)


def _message(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    return _messages(engine, args, typ) or s.text("")


def _record(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    fields = {
        f"f{i}": element_cast(s.field(args[0].ast, f"f{i}"), old.type, new.type, engine)
        for i, ((_, old), (_, new)) in enumerate(
            zip(args[0].typ.fields, typ.fields, strict=True), start=1
        )
    }
    return s.case((s.is_not_null(args[0].ast), s.cast(s.struct(**fields), typ, engine)))


# --- to text -------------------------------------------------------------------------------------

_NESTING = ("array", "list", "map")


def container_text(ast: Ast, typ: SqlType, engine: Engine) -> Ast:
    """The text of an array, list, map or record; NULL for NULL."""
    if typ.kind == "record":
        return _record_text(ast, typ, engine)
    if typ.kind == "map":
        return _map_text(ast, typ, engine)
    element = _elements(typ)
    name = _variable(element, "ct")
    body = _shown(s.variable(name), element, engine, s.text("NULL"))
    spark = engine is Engine.SPARK
    texts = s.call("TRANSFORM" if spark else "LIST_TRANSFORM", ast, s.lambda_((name,), body))
    return _braced(texts, ast, engine)


def _braced(texts: Ast, whole: Ast, engine: Engine) -> Ast:
    name = "ARRAY_JOIN" if engine is Engine.SPARK else "ARRAY_TO_STRING"
    joined = s.coalesce(s.call(name, texts, s.text(",")), s.text(""))
    return s.case((s.is_not_null(whole), s.concat(s.text("{"), joined, s.text("}"))))


def inner_text(ast: Ast, typ: SqlType, engine: Engine) -> Ast:
    """The text of a value inside another one."""
    if typ.kind == "boolean":
        return s.case((ast, s.text("t")), (s.not_(ast), s.text("f")))
    if typ.kind in (*_NESTING, "record"):
        return container_text(ast, typ, engine)
    return to_text(ast, typ, engine)


def _shown(ast: Ast, typ: SqlType, engine: Engine, missing: Ast, *, in_map: bool = False) -> Ast:
    text = inner_text(ast, typ, engine)
    if typ.kind not in _NESTING:
        pattern = '[{},"\\\\\\s]|=>' if in_map else '[{},"\\\\\\s]'
        special = s.or_(
            s.matches(text, pattern, engine),
            s.eq(text, s.text("")),
            s.eq(s.call("UPPER", text), s.text("NULL")),
        )
        text = s.case((special, _quoted(text, '\\"')), otherwise=text)
    return s.case((s.is_null(ast), missing), otherwise=text)


def _quoted(text: Ast, quote: str) -> Ast:
    escaped = s.call("REPLACE", text, s.text("\\"), s.text("\\\\"))
    return s.concat(
        s.text('"'), s.call("REPLACE", escaped, s.text('"'), s.text(quote)), s.text('"')
    )


def _map_text(ast: Ast, typ: SqlType, engine: Engine) -> Ast:
    name = _variable(_elements(typ), "cm")
    entry = s.variable(name)
    key = _shown(s.field(entry, "key"), TEXT, engine, s.text("NULL"), in_map=True)
    value = s.field(entry, "value")
    shown = _shown(value, _elements(typ), engine, s.text("NULL"), in_map=True)
    spark = engine is Engine.SPARK
    texts = s.call(
        "TRANSFORM" if spark else "LIST_TRANSFORM",
        s.call("MAP_ENTRIES", ast),
        s.lambda_((name,), s.concat(key, s.text("=>"), shown)),
    )
    return _braced(texts, ast, engine)


def _record_text(ast: Ast, typ: SqlType, engine: Engine) -> Ast:
    parts: list[Ast] = []
    for i, (_, column) in enumerate(typ.fields, start=1):
        field = s.field(ast, f"f{i}")
        text = inner_text(field, column.type, engine)
        special = s.or_(s.matches(text, '[(),"\\\\\\s]', engine), s.eq(text, s.text("")))
        shown = s.case(
            (s.is_null(field), s.text("")), (special, _quoted(text, '""')), otherwise=text
        )
        parts += [s.text(","), shown] if parts else [shown]
    body = s.concat(s.text("("), *parts, s.text(")"))
    return s.case((s.is_not_null(ast), body))


def _text(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    return container_text(args[0].ast, args[0].typ, engine)


def _cast(source: str, target: str) -> ScalarFunc:
    rule = ErrorRule(_fails, _message)
    return ScalarFunc(
        key=f"{source}_to_{target}",
        name="cast",
        args=(ANY,),
        result=of(target),
        value=_record if source == "record" else _each,
        introduces_nulls=False,
        errors=() if source == "record" else (rule,),
    )


CASTS: tuple[ScalarFunc, ...] = (
    *(ScalarFunc(f"{kind}_to_text", "cast", (ANY,), TEXT, _text) for kind in (*_NESTING, "record")),
    *(_cast(kind, kind) for kind in (*_NESTING, "record")),
    _cast("array", "list"),
)
