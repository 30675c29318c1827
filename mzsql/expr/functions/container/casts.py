"""Casts of containers, element by element.

Promise: an array, list or map casts to one with other elements exactly if its elements do; the first failing element
gives the error. Their texts are those of `mzsql.expr.functions.output`.
"""

from __future__ import annotations

from collections.abc import Sequence

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.cast.casts import find_cast
from mzsql.expr.functions.cast.declared import cast_named, declared
from mzsql.expr.functions.comparison import ANY
from mzsql.expr.functions.declare import Ast, of, variable_of
from mzsql.expr.functions.output.to_text import text_of
from mzsql.expr.functions.rules import rules_error
from mzsql.expr.functions.table import Engine, ErrorRule, ScalarFunc, Sql
from mzsql.repr.types import TEXT, SqlType

# --- element by element --------------------------------------------------------------------------


def _chain(source: SqlType, target: SqlType) -> list[tuple[ScalarFunc, SqlType]]:
    """The casts from one type to the other, each with the type of its result."""
    steps: list[tuple[ScalarFunc, SqlType]] = []
    typ = source
    keys = find_cast(source, target, "explicit") or ()
    for i, key in enumerate(keys):
        func = cast_named(key)
        typ = target if i == len(keys) - 1 else func.result_type([typ])
        steps.append((func, typ))
    return steps


def element_cast(ast: Ast, source: SqlType, target: SqlType, engine: Engine) -> Ast:
    """A value cast; arbitrary where the cast fails."""
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
    """The message with which a cast fails; NULL where it succeeds, None if it never fails."""
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
    name = variable_of(source, "ec")
    body = element_cast(s.variable(name), source, target, engine)
    if args[0].typ.kind == "map":
        return _each_value(args[0].ast, name, body, typ, engine)
    return s.mapped(args[0].ast, name, body, engine)


def _each_value(map_: Ast, name: str, body: Ast, typ: SqlType, engine: Engine) -> Ast:
    if engine is Engine.SPARK:
        return s.call("TRANSFORM_VALUES", map_, s.lambda_((f"{name}k", name), body))
    values = s.call("LIST_TRANSFORM", s.call("MAP_VALUES", map_), s.lambda_((name,), body))
    made = s.cast(s.call("MAP", s.call("MAP_KEYS", map_), values), typ, engine)
    return s.case((s.is_not_null(map_), made))


def _messages(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast | None:
    """The message of the first failing element; NULL if none fails, None if none can."""
    if args[0].typ.kind == "record":
        return _field_messages(args[0], typ, engine)
    source, target = _elements(args[0].typ), _elements(typ)
    name = variable_of(source, "ee")
    failure = element_error(s.variable(name), source, target, engine)
    if failure is None:
        return None
    values = s.call("MAP_VALUES", args[0].ast) if args[0].typ.kind == "map" else args[0].ast
    found = s.mapped(values, name, failure, engine)
    kept = s.kept(found, f"{name}m", s.is_not_null(s.variable(f"{name}m")), engine)
    first = "TRY_ELEMENT_AT" if engine is Engine.SPARK else "LIST_EXTRACT"
    return s.call(first, kept, s.num(1))


def _fails(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    message = _messages(engine, args, typ)
    return s.boolean(False) if message is None else s.is_not_null(message)


def _message(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    return _messages(engine, args, typ) or s.text("")


def _field_messages(record: Sql, typ: SqlType, engine: Engine) -> Ast | None:
    """The message of the first failing field of a record; NULL if none fails, None if none can."""
    pairs = zip(record.typ.fields, typ.fields, strict=True)
    failures = [
        element_error(s.field(record.ast, f"f{i}"), old.type, new.type, engine)
        for i, ((_, old), (_, new)) in enumerate(pairs, start=1)
    ]
    found = [failure for failure in failures if failure is not None]
    return s.coalesce(*found) if found else None


def _record(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    fields = {
        f"f{i}": element_cast(s.field(args[0].ast, f"f{i}"), old.type, new.type, engine)
        for i, ((_, old), (_, new)) in enumerate(
            zip(args[0].typ.fields, typ.fields, strict=True), start=1
        )
    }
    return s.case((s.is_not_null(args[0].ast), s.cast(s.struct(**fields), typ, engine)))


_NESTING = ("array", "list", "map")


def _cast(source: str, target: str) -> ScalarFunc:
    rule = ErrorRule(_fails, _message)
    return ScalarFunc(
        key=f"{source}_to_{target}",
        name="cast",
        args=(ANY,),
        result=of(target),
        value=_record if source == "record" else _each,
        introduces_nulls=False,
        errors=(rule,),
    )


CASTS: tuple[ScalarFunc, ...] = declared(
    *(
        ScalarFunc(f"{kind}_to_text", "cast", (ANY,), TEXT, text_of)
        for kind in (*_NESTING, "record")
    ),
    *(_cast(kind, kind) for kind in (*_NESTING, "record")),
    _cast("array", "list"),
)
