"""Editing jsonb by path (`jsonb_set`, `jsonb_insert`, ``#-``), comparing documents with ``<``, and building objects
from texts.

Promise: PostgreSQL's rules: a path that leads nowhere changes nothing, an index beyond an array's end means its end,
and documents order as null, strings, numbers, booleans, arrays, objects, with fewer members first. Trade-off: DuckDB
does it all, one token or step at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.declare import Ast
from mzsql.expr.functions.json import documents as j
from mzsql.expr.functions.table import Engine, ErrorRule, Spelling, Sql
from mzsql.repr.types import BIGINT, SqlType

_INTEGER = "^-?[0-9]{1,9}$"


# --- along a path --------------------------------------------------------------------------------


def step(json: Ast, key: Ast) -> Ast:
    """The document under a key of an object, or at an index of an array."""
    number = s.try_cast_to(
        s.case((s.matches(key, "^-?[0-9]{1,18}$", Engine.DUCKDB), key)),
        s.sql_type(BIGINT, Engine.DUCKDB),
    )
    return s.case(
        (j.is_kind(json, "OBJECT"), j.field(json, key)),
        (j.is_kind(json, "ARRAY"), j.element(json, number)),
    )


def _on_the_way(target: Ast, path: Ast) -> Ast:
    """The documents to which a path's steps apply, from the whole document on."""
    state, key = s.variable("ew0"), s.variable("ew1")
    last = s.call("LIST_EXTRACT", state, s.num(-1))
    more = s.call("LIST_APPEND", state, step(last, key))
    walked = s.call("LIST_REDUCE", path, s.lambda_(("ew0", "ew1"), more), s.array(target))
    return s.call("LIST_SLICE", walked, s.num(1), s.call("LEN", path))


def _holder(json: Ast) -> Ast:
    return s.or_(j.is_kind(json, "OBJECT"), j.is_kind(json, "ARRAY"))


def _within_array(json: Ast, key: Ast, name: str, build: Callable[[Ast, Ast, Ast], Ast]) -> Ast:
    """The result of ``build`` for an array's elements before, at and after the index of a step."""
    items, place = s.variable(f"{name}i"), s.variable(f"{name}p")
    size = s.big(s.call("LEN", items))
    number = s.big(s.case((s.matches(key, _INTEGER, Engine.DUCKDB), key)))
    at = s.case((s.lt(number, s.num(0)), s.add(number, size)), otherwise=number)
    none = s.call("LIST_SLICE", items, s.num(1), s.num(0))
    start = s.add(s.at_least(place, s.big(s.num(0))), s.num(1))
    head = s.case(
        (s.gt(place, s.num(0)), s.call("LIST_SLICE", items, s.num(1), place)), otherwise=none
    )
    there = s.and_(s.gte(place, s.num(0)), s.lt(place, size))
    found = s.case((there, s.call("LIST_SLICE", items, start, start)), otherwise=none)
    begins = s.case((there, s.add(start, s.num(1))), otherwise=start)
    behind = s.case(
        (s.lte(begins, size), s.call("LIST_SLICE", items, begins, size)), otherwise=none
    )
    made = s.let(at, f"{name}p", build(head, found, behind), Engine.DUCKDB)
    return s.let(j.elements(json), f"{name}i", made, Engine.DUCKDB)


def _joined(*lists: Ast) -> Ast:
    made = lists[0]
    for part in lists[1:]:
        made = s.call("LIST_CONCAT", made, part)
    return j.array_of(made)


def _with_key(json: Ast, key: Ast, value: Ast, name: str) -> Ast:
    pair = s.array(s.struct(key=key, value=value))
    return j.object_of(s.call("LIST_CONCAT", j.entries(json, name), pair), f"{name}o")


def _put(json: Ast, key: Ast, value: Ast, name: str) -> Ast:
    """A document with the value at the place of a step, which may not exist yet."""
    placed = _within_array(
        json, key, f"{name}a", lambda head, _, behind: _joined(head, s.array(value), behind)
    )
    return s.case((j.is_kind(json, "OBJECT"), _with_key(json, key, value, name)), otherwise=placed)


def _at_last(docs: Ast, steps: Ast, last: Callable[[Ast, Ast], Ast]) -> Ast:
    end = s.num(-1)
    made = s.let(
        s.call("LIST_EXTRACT", steps, end),
        "lk0",
        last(s.variable("lj0"), s.variable("lk0")),
        Engine.DUCKDB,
    )
    return s.let(s.call("LIST_EXTRACT", docs, end), "lj0", made, Engine.DUCKDB)


def _edited(target: Ast, path: Ast, last: Callable[[Ast, Ast], Ast]) -> Ast:
    """The document with ``last`` applied to its innermost part and the path's last step; unchanged if the path leads
    nowhere.
    """
    docs, steps = s.variable("ed0"), s.variable("ep0")
    size = s.call("LEN", steps)
    at = s.variable("ei0")
    one = s.let(
        s.call("LIST_EXTRACT", steps, at),
        "ek0",
        _put(s.variable("ej0"), s.variable("ek0"), s.variable("ea0"), "eu"),
        Engine.DUCKDB,
    )
    outer = s.let(s.call("LIST_EXTRACT", docs, at), "ej0", one, Engine.DUCKDB)
    upwards = s.call(
        "LIST_REDUCE",
        s.call("RANGE", s.sub(size, s.num(1)), s.num(0), s.num(-1)),
        s.lambda_(("ea0", "ei0"), outer),
        _at_last(docs, steps, last),
    )
    missing = s.call(
        "LIST_FILTER",
        docs,
        s.lambda_(("eh0",), s.not_(s.coalesce(_holder(s.variable("eh0")), s.boolean(False)))),
    )
    found = s.and_(s.gt(size, s.num(0)), s.eq(s.call("LEN", missing), s.num(0)))
    whole = s.case((found, upwards), otherwise=target)
    within = s.let(_on_the_way(target, path), "ed0", whole, Engine.DUCKDB)
    known = s.and_(s.is_not_null(target), s.is_not_null(path))
    return s.case((known, s.let(path, "ep0", within, Engine.DUCKDB)))


def _has(json: Ast, key: Ast) -> Ast:
    return s.is_not_null(step(json, key))


def set_at(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    """``jsonb_set(target, path, value, create)``."""
    j.duckdb(engine)
    target, path, value = (arg.ast for arg in args[:3])
    create = args[3].ast if len(args) > 3 else s.boolean(True)

    def last(json: Ast, key: Ast) -> Ast:
        wanted = s.or_(create, _has(json, key))
        return s.case((wanted, _put(json, key, value, "es")), otherwise=json)

    return _edited(target, path, last)


def insert_at(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    """``jsonb_insert(target, path, value, after)``."""
    j.duckdb(engine)
    target, path, value = (arg.ast for arg in args[:3])
    after = args[3].ast if len(args) > 3 else s.boolean(False)

    def put(head: Ast, at: Ast, behind: Ast) -> Ast:
        one = s.array(value)
        return s.case(
            (after, _joined(head, at, one, behind)), otherwise=_joined(head, one, at, behind)
        )

    def last(json: Ast, key: Ast) -> Ast:
        placed = _within_array(json, key, "en", put)
        return s.case(
            (j.is_kind(json, "OBJECT"), _with_key(json, key, value, "en")), otherwise=placed
        )

    return _edited(target, path, last)


def delete_at(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    """``target #- path``."""
    j.duckdb(engine)
    target, path = (arg.ast for arg in args)

    def last(json: Ast, key: Ast) -> Ast:
        other = s.lambda_(("ex0",), s.neq(s.field(s.variable("ex0"), "key"), key))
        kept = j.object_of(s.call("LIST_FILTER", j.entries(json, "ey0"), other), "ez")
        shorter = _within_array(json, key, "ex", lambda head, _, behind: _joined(head, behind))
        return s.case((j.is_kind(json, "OBJECT"), kept), otherwise=shorter)

    return _edited(target, path, last)


def _bad_step(args: Sequence[Sql]) -> Ast:
    """The position of the first step into an array that is no number; NULL if there is none."""
    docs, steps, at = s.variable("eb2"), s.variable("eb3"), s.variable("eb0")
    bad = s.and_(
        j.is_kind(s.call("LIST_EXTRACT", docs, at), "ARRAY"),
        s.not_(s.matches(s.call("LIST_EXTRACT", steps, at), _INTEGER, Engine.DUCKDB)),
    )
    numbers = s.call("RANGE", s.num(1), s.add(s.call("LEN", steps), s.num(1)))
    found = s.call("LIST_FILTER", numbers, s.lambda_(("eb0",), s.coalesce(bad, s.boolean(False))))
    first = s.call("LIST_EXTRACT", found, s.num(1))
    within = s.let(_on_the_way(args[0].ast, s.variable("eb3")), "eb2", first, Engine.DUCKDB)
    return s.let(args[1].ast, "eb3", within, Engine.DUCKDB)


def _bad_step_message(_engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    number = s.variable("eb1")
    said = s.concat(
        s.text("path element at position "),
        s.string(number),
        s.text(' is not an integer: "'),
        s.call("LIST_EXTRACT", args[1].ast, number),
        s.text('"'),
    )
    return s.let(_bad_step(args), "eb1", said, Engine.DUCKDB)


NUMBERED = ErrorRule(lambda _engine, args, _typ: s.is_not_null(_bad_step(args)), _bad_step_message)


def _there_already(_engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    path = args[1].ast
    holder = s.call("LIST_EXTRACT", _on_the_way(args[0].ast, path), s.num(-1))
    key = s.call("LIST_EXTRACT", path, s.num(-1))
    there = s.and_(j.is_kind(s.variable("et0"), "OBJECT"), _has(s.variable("et0"), key))
    return s.let(holder, "et0", there, Engine.DUCKDB)


NEW = ErrorRule(_there_already, "cannot replace existing key")


def _scalar(does: str) -> ErrorRule:
    """The error for a path into a scalar at the top; within a document a scalar only ends the path."""
    return ErrorRule(
        lambda _engine, args, _typ: s.not_(_holder(args[0].ast)),
        f"cannot {does} path in scalar",
    )


HOLDER, HOLDER_DELETED = _scalar("set"), _scalar("delete")


# --- order ---------------------------------------------------------------------------------------


def _padded(number: Ast) -> Ast:
    return s.call("LPAD", s.string(number), s.num(10), s.text("0"))


def _number_key(json: Ast) -> Ast:
    """A text that sorts like a number: padded digits, complemented for negative numbers."""
    whole = s.call("LPAD", s.regexp_group(json, "^-?([0-9]+)", 1), s.num(40), s.text("0"))
    digits = s.concat(whole, s.regexp_group(json, "[.]([0-9]+)$", 1))
    turned = s.call("TRANSLATE", digits, s.text("0123456789"), s.text("9876543210"))
    negative = s.call("STARTS_WITH", json, s.text("-"))
    return s.case(
        (negative, s.concat(s.text("3n"), turned, s.text("~"))),
        otherwise=s.concat(s.text("3p"), digits, s.text("!")),
    )


def _text_key(text: Ast) -> Ast:
    """A text with a terminator that sorts before every character."""
    end = s.call("CHR", s.num(1))
    inner = s.call("REPLACE", text, end, s.concat(end, s.call("CHR", s.num(2))))
    return s.concat(s.text("2"), inner, end, end)


def _joined_keys(items: Ast) -> Ast:
    return s.coalesce(s.call("ARRAY_TO_STRING", items, s.text("")), s.text(""))


def _array_key(items: Ast) -> Ast:
    """The sort key of an array: the number of elements, then the elements."""
    return s.concat(s.text("5"), _padded(s.call("LEN", items)), _joined_keys(items))


def _object_key(items: Ast) -> Ast:
    """The sort key of an object: the number of entries, then the entries, shorter keys first as they are stored."""
    place = s.variable("kp0")
    key = s.call("LIST_EXTRACT", items, place)
    value = s.call("LIST_EXTRACT", items, s.add(place, s.num(1)))
    entry = s.concat(_padded(s.call("STRLEN", key)), key, value)
    places = s.call("RANGE", s.num(1), s.call("LEN", items), s.num(2))
    entries = s.call("LIST_TRANSFORM", places, s.lambda_(("kp0",), entry))
    count = _padded(s.call("LEN", items))
    return s.concat(s.text("6"), count, _joined_keys(s.call("LIST_SORT", entries)))


def order_key(json: Ast) -> Ast:
    """A text that sorts like the document."""

    def step(stack: Ast, token: Ast) -> Ast:
        one = s.case(
            (s.call("STARTS_WITH", token, s.text('"')), _text_key(j.unquoted(token))),
            (s.eq(token, s.text("null")), s.text("1")),
            (
                s.or_(*(s.eq(token, s.text(t)) for t in ("true", "false"))),
                s.concat(s.text("4"), token),
            ),
            (s.or_(*(s.eq(token, s.text(t)) for t in ("[", "{"))), token),
            otherwise=_number_key(token),
        )
        return s.case(
            (s.eq(token, s.text("}")), j.closed(stack, "{", _object_key)),
            (s.eq(token, s.text("]")), j.closed(stack, "[", _array_key)),
            (s.or_(*(s.eq(token, s.text(t)) for t in (",", ":"))), stack),
            otherwise=s.call("LIST_APPEND", stack, one),
        )

    # PostgreSQL's exception: an empty array sorts before everything but arrays.
    return s.case(
        (s.eq(json, s.text("[]")), s.text("0")), otherwise=j.folded(j.tokens(json), "ko", step)
    )


def ordered(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    """``jsonb_order_key``: a text that sorts like the document; equal documents have equal ones."""
    j.duckdb(engine)
    return order_key(args[0].ast)


def compared(build: Callable[[Ast, Ast], Ast]) -> Spelling:
    """The comparison of two documents."""

    def value(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        j.duckdb(engine)
        return build(*(order_key(arg.ast) for arg in args))

    return value


# --- objects of texts ----------------------------------------------------------------------------


def object_of_texts(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    """``jsonb_object`` of an array of keys and values, or of one of keys and one of values."""
    j.duckdb(engine)
    place, flat = s.variable("jt9"), args[0].ast
    inner = args[0].typ.element
    if inner is not None and inner.kind == "array":
        flat = s.call("FLATTEN", flat)
    at = s.call("LIST_EXTRACT", flat, place)
    if len(args) > 1:
        numbers = s.call("RANGE", s.num(1), s.add(s.call("LEN", flat), s.num(1)))
        value = s.call("LIST_EXTRACT", args[1].ast, place)
    else:
        numbers = s.call("RANGE", s.num(1), s.call("LEN", flat), s.num(2))
        value = s.call("LIST_EXTRACT", flat, s.add(place, s.num(1)))
    shown = s.case((s.is_null(value), s.text("null")), otherwise=j.quoted(value))
    pairs = s.call("LIST_TRANSFORM", numbers, s.lambda_(("jt9",), s.struct(key=at, value=shown)))
    absent = ((s.is_null(one.ast), s.null()) for one in args)
    return s.case(*absent, otherwise=j.object_of(pairs, "8"))


ODD = ErrorRule(
    lambda _engine, args, _typ: s.neq(s.mod(s.call("LEN", args[0].ast), s.num(2)), s.num(0)),
    "array must have even number of elements",
    lambda args, _typ: args[0].element is not None and args[0].element.kind != "array",
)
UNEVEN = ErrorRule(
    lambda _engine, args, _typ: s.neq(s.call("LEN", args[0].ast), s.call("LEN", args[1].ast)),
    "mismatched array dimensions",
)
