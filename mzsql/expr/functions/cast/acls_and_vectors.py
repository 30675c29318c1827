"""Casts to the texts of one form: ``aclitem`` and ``mz_aclitem``, ``int2vector`` and ``oidvector``.

Promise: as PostgreSQL and Materialize write them: the letters of privileges each once, in the order of an ACL; numbers with one blank
between them. What has another form, or a number beyond its bounds, is an error in the words of the type.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.cast_rows import ASSIGNMENT, IMPLICIT, Cast, cast_row
from mzsql.expr.functions.declare import BOUNDS, Ast
from mzsql.expr.functions.table import Engine, ErrorRule, Spelling, Sql
from mzsql.repr.errors import Unsupported
from mzsql.repr.types import (
    ACLITEM,
    INT2VECTOR,
    MZ_ACLITEM,
    OIDVECTOR,
    VECTOR_ELEMENTS,
    SqlType,
    type_name,
)

#: The letters of all privileges in the order of an ACL.
LETTERS = "arwdUCRBNP"
_ROLES = {ACLITEM: "[0-9]+", MZ_ACLITEM: "[usgp][0-9]*"}
#: Who is everybody has no name in an item.
_EVERYBODY = {ACLITEM: "0", MZ_ACLITEM: "p"}
#: The key of the cast of a text to each of them, by its length.
KEYS = {
    typ.length: f"text_to_{type_name(typ)}" for typ in (ACLITEM, MZ_ACLITEM, INT2VECTOR, OIDVECTOR)
}


def _in_process(typ: SqlType, value: Callable[[Ast], Ast]) -> Spelling:
    def spelling(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        if engine is not Engine.DUCKDB:
            raise Unsupported(f"casts to {type_name(typ)} are computed in process")
        return value(args[0].ast)

    return spelling


def _item(typ: SqlType, text: Ast) -> Ast:
    """An ACL's item; NULL where the text is none."""
    role = _ROLES[typ]
    form = f"^({role})?=[{LETTERS}]*/{role}$"
    grantee = s.call("SPLIT_PART", text, s.text("="), s.num(1))
    rest = s.call("SPLIT_PART", text, s.text("="), s.num(2))
    modes = s.call("SPLIT_PART", rest, s.text("/"), s.num(1))
    grantor = s.call("SPLIT_PART", rest, s.text("/"), s.num(2))
    letters = [
        s.case((s.call("CONTAINS", modes, s.text(one)), s.text(one)), otherwise=s.text(""))
        for one in LETTERS
    ]
    named = s.coalesce(s.nullif(grantee, s.text(_EVERYBODY[typ])), s.text(""))
    whole = s.concat(named, s.text("="), *letters, s.text("/"), grantor)
    return s.case((s.matches(text, form, Engine.DUCKDB), whole))


def _vector(kind: str, text: Ast) -> Ast:
    """Numbers with a blank between them; NULL where the text is none."""
    low, high = BOUNDS[kind]
    each, number = s.variable("vn0"), s.variable("vn1")
    tokens = s.call("REGEXP_EXTRACT_ALL", text, s.text("[^ \t\n\r]+"))
    # The engine's own cast rounds, and reads other spellings of numbers too.
    written = s.matches(each, "^[+-]?[0-9]+$", Engine.DUCKDB)
    bigint = s.try_cast_to(each, s.sql_type(SqlType("bigint"), Engine.DUCKDB))
    read = s.lambda_(("vn0",), s.case((written, bigint)))
    numbers = s.call("LIST_TRANSFORM", tokens, read)
    fits = s.coalesce(s.between(number, s.num(low), s.num(high)), s.boolean(False))
    bad = s.call("LIST_FILTER", numbers, s.lambda_(("vn1",), s.not_(fits)))
    joined = s.coalesce(s.call("ARRAY_TO_STRING", numbers, s.text(" ")), s.text(""))
    return s.case((s.eq(s.call("LEN", bad), s.num(0)), joined))


def _reading(typ: SqlType, value: Callable[[Ast], Ast]) -> Cast:
    spelled = _in_process(typ, value)

    def unread(engine: Engine, args: Sequence[Sql], result: SqlType) -> Ast:
        return s.is_null(spelled(engine, args, result))

    def message(_engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        lead = f'invalid input syntax for type {type_name(typ)}: "'
        return s.concat(s.text(lead), args[0].ast, s.text('"'))

    rule = ErrorRule(unread, message)
    return cast_row("text", "text", ASSIGNMENT, spelled, rule, result=typ, key=KEYS[typ.length])


#: The keys of the casts from vectors to arrays of what they hold.
TO_ARRAY = {typ: f"{type_name(typ)}_to_array" for typ in VECTOR_ELEMENTS}


def _numbers(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    if engine is not Engine.DUCKDB:
        raise Unsupported(f"casts to {type_name(typ)} are computed in process")
    text = args[0].ast
    none = s.cast(s.array(), typ, engine)
    parts = s.cast(s.call("STRING_SPLIT", text, s.text(" ")), typ, engine)
    return s.case((s.eq(text, s.text("")), none), (s.is_not_null(text), parts))


def _to_array(vector: SqlType) -> Cast:
    array = SqlType("array", element=VECTOR_ELEMENTS[vector])
    return cast_row("text", "array", IMPLICIT, _numbers, result=array, key=TO_ARRAY[vector])


CASTS: tuple[Cast, ...] = (
    *(_to_array(vector) for vector in VECTOR_ELEMENTS),
    _reading(ACLITEM, lambda text: _item(ACLITEM, text)),
    _reading(MZ_ACLITEM, lambda text: _item(MZ_ACLITEM, text)),
    _reading(INT2VECTOR, lambda text: _vector("smallint", text)),
    _reading(OIDVECTOR, lambda text: _vector("oid", text)),
)
