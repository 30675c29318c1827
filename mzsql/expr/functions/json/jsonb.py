"""jsonb's operators and functions.

Promise: what a document lacks is NULL, never an error. SQL values become documents as in Materialize: numbers that JSON cannot express
(NaN), and values that are no number, boolean, text, array, list, map or record, become their texts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.comparison import ANY, OPERATORS
from mzsql.expr.functions.declare import FLOATS, INTEGERS, STRINGS, Ast
from mzsql.expr.functions.json import documents as j
from mzsql.expr.functions.json import editing as e
from mzsql.expr.functions.output.to_text import to_text
from mzsql.expr.functions.table import Engine, ErrorRule, ScalarFunc, Spelling, Sql
from mzsql.repr.types import BIGINT, BOOLEAN, INTEGER, JSONB, TEXT, SqlType

_PATH = SqlType("array", element=TEXT)


def _only(build: Callable[..., Ast]) -> Spelling:
    """A spelling for DuckDB, from a function of the arguments' ASTs."""

    def value(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        j.duckdb(engine)
        return build(*(arg.ast for arg in args))

    return value


def _strictly(build: Callable[[Ast, Ast], Ast]) -> Callable[[Ast, Ast], Ast]:
    """The result of ``build``, with NULL for NULL arguments, which DuckDB's list functions treat as elements or ignore."""

    def built(left: Ast, right: Ast) -> Ast:
        unknown = s.or_(s.is_null(left), s.is_null(right))
        return s.case((unknown, s.null()), otherwise=build(left, right))

    return built


def _func(
    key: str,
    name: str,
    args: Sequence[SqlType],
    result: SqlType,
    value: Spelling,
    explain: str = "",
    *,
    nulls: bool = True,
    variadic: SqlType | None = None,
    strict: bool = True,
    errors: tuple[ErrorRule, ...] = (),
) -> ScalarFunc:
    return ScalarFunc(
        key=key,
        name=name,
        args=tuple(args),
        result=result,
        value=value,
        variadic=variadic,
        explain=explain,
        strict=strict,
        introduces_nulls=nulls,
        errors=errors,
    )


# --- values of SQL as documents ------------------------------------------------------------------


def document(ast: Ast, typ: SqlType, engine: Engine, depth: int = 0) -> Ast:
    """A value as jsonb; NULL for NULL."""
    j.duckdb(engine)
    if typ.kind == "jsonb":
        return ast.copy()
    if typ.kind in ("boolean", "numeric", *INTEGERS):
        return to_text(ast, typ, engine)
    if typ.kind in FLOATS:
        text = to_text(ast, typ, engine)
        finite = s.matches(text, "^-?[0-9]", engine)
        return s.case((finite, text), otherwise=j.quoted(text))
    if typ.kind in STRINGS or typ.kind == "unknown":
        return j.quoted(ast)
    if typ.kind in ("array", "list"):
        return _of_items(ast, typ, engine, depth)
    if typ.kind == "map":
        return _of_map(ast, typ, engine, depth)
    if typ.kind == "record":
        return _of_record(ast, typ, engine, depth)
    return j.quoted(to_text(ast, typ, engine))


def _or_null(ast: Ast, typ: SqlType, engine: Engine, depth: int) -> Ast:
    """A value inside a document, where NULL is null."""
    return s.coalesce(document(ast, typ, engine, depth), s.text("null"))


def _of_items(ast: Ast, typ: SqlType, engine: Engine, depth: int) -> Ast:
    assert typ.element is not None
    name = f"td{depth}"
    item = _or_null(s.variable(name), typ.element, engine, depth + 1)
    items = s.call("LIST_TRANSFORM", ast, s.lambda_((name,), item))
    return s.case((s.is_not_null(ast), j.array_of(items)))


def _of_map(ast: Ast, typ: SqlType, engine: Engine, depth: int) -> Ast:
    assert typ.element is not None
    name = f"td{depth}"
    entry = s.variable(name)
    value = _or_null(s.field(entry, "value"), typ.element, engine, depth + 1)
    pair = s.struct(key=s.field(entry, "key"), value=value)
    pairs = s.call("LIST_TRANSFORM", s.call("MAP_ENTRIES", ast), s.lambda_((name,), pair))
    return s.case((s.is_not_null(ast), j.object_of(pairs, f"m{depth}")))


def _of_record(ast: Ast, typ: SqlType, engine: Engine, depth: int) -> Ast:
    parts: dict[str, Ast] = {}
    for i, (name, column) in enumerate(typ.fields, start=1):
        value = _or_null(s.field(ast, f"f{i}"), column.type, engine, depth)
        parts[name] = s.concat(j.quoted(s.text(name)), s.text(":"), value)
    body: list[Ast] = []
    for name in sorted(parts):
        body += [s.text(","), parts[name]] if body else [parts[name]]
    return s.case((s.is_not_null(ast), s.concat(s.text("{"), *body, s.text("}"))))


def _to_jsonb(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    return document(args[0].ast, args[0].typ, engine)


def _build_array(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    j.duckdb(engine)
    items = [_or_null(arg.ast, arg.typ, engine, 0) for arg in args]
    return j.array_of(s.array(*items)) if items else s.text("[]")


def _build_object(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    j.duckdb(engine)
    pairs = [
        s.struct(key=_key(key, engine), value=_or_null(value.ast, value.typ, engine, 0))
        for key, value in zip(args[::2], args[1::2], strict=True)
    ]
    return j.object_of(s.array(*pairs)) if pairs else s.text("{}")


def _key(arg: Sql, engine: Engine) -> Ast:
    return j.shown(arg.ast) if arg.typ.kind == "jsonb" else to_text(arg.ast, arg.typ, engine)


def _null_key(_engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    return s.or_(*(s.is_null(arg.ast) for arg in args[::2]))


# --- operators -----------------------------------------------------------------------------------


def _path(json: Ast, path: Ast) -> Ast:
    """The document reached by a path of keys and indexes."""
    one = e.step(s.variable("pa0"), s.variable("pk0"))
    return s.call("LIST_REDUCE", path, s.lambda_(("pa0", "pk0"), one), json)


def _has_key(json: Ast, key: Ast) -> Ast:
    return s.coalesce(
        s.case(
            (j.is_kind(json, "OBJECT"), s.call("LIST_CONTAINS", j.keys(json), key)),
            (j.is_kind(json, "ARRAY"), s.call("LIST_CONTAINS", j.elements(json), j.quoted(key))),
            (j.is_kind(json, "VARCHAR"), s.eq(json, j.quoted(key))),
        ),
        s.boolean(False),
    )


def _concat(left: Ast, right: Ast) -> Ast:
    objects = s.and_(j.is_kind(left, "OBJECT"), j.is_kind(right, "OBJECT"))
    merged = s.call("LIST_CONCAT", j.entries(left, "jc0"), j.entries(right, "jc1"))
    some = s.or_(j.is_kind(left, "ARRAY"), j.is_kind(right, "ARRAY"))
    items = s.call(
        "LIST_CONCAT",
        s.coalesce(j.elements(left), s.array(left)),
        s.coalesce(j.elements(right), s.array(right)),
    )
    return s.case((objects, j.object_of(merged)), (some, j.array_of(items)))


def _without_key(json: Ast, key: Ast) -> Ast:
    entry, item = s.variable("wk0"), s.variable("wk1")
    other = s.lambda_(("wk0",), s.neq(s.field(entry, "key"), key))
    unlike = s.lambda_(("wk1",), s.neq(item, j.quoted(key)))
    return s.case(
        (j.is_kind(json, "OBJECT"), j.object_of(s.call("LIST_FILTER", j.entries(json), other))),
        (j.is_kind(json, "ARRAY"), j.array_of(s.call("LIST_FILTER", j.elements(json), unlike))),
    )


def _without_element(json: Ast, index: Ast) -> Ast:
    size = s.big(j.length(json))
    place = s.case((s.lt(index, s.num(0)), s.add(s.big(index), size)), otherwise=s.big(index))
    numbers = s.call("RANGE", size)
    kept = s.call("LIST_FILTER", numbers, s.lambda_(("we0",), s.neq(s.variable("we0"), place)))
    item = s.call("LIST_EXTRACT", j.elements(json), s.add(s.variable("we1"), s.num(1)))
    items = s.call("LIST_TRANSFORM", kept, s.lambda_(("we1",), item))
    return s.case((j.is_kind(json, "ARRAY"), j.array_of(items)))


def _typeof(json: Ast) -> Ast:
    names = {
        "OBJECT": "object",
        "ARRAY": "array",
        "VARCHAR": "string",
        "BOOLEAN": "boolean",
        "NULL": "null",
    }
    branches = [(j.is_kind(json, kind), s.text(name)) for kind, name in names.items()]
    return s.case((s.is_null(json), s.null()), *branches, otherwise=s.text("number"))


def _pretty(json: Ast) -> Ast:
    """The document with line breaks and two blanks of indent per open bracket, token by token."""
    tokens = s.call(
        "REGEXP_EXTRACT_ALL",
        json,
        s.text('"(?:[^"\\\\]|\\\\.)*"|\\[\\]|{}|[\\[\\]{},:]|[^\\[\\]{},:"]+'),
    )
    state, token = s.variable("pp0"), s.variable("pt0")
    text, depth = s.field(state, "t"), s.field(state, "d")

    def line(level: Ast) -> Ast:
        return s.concat(s.text("\n"), s.call("REPEAT", s.text("  "), level))

    deeper, out = s.add(depth, s.num(1)), s.sub(depth, s.num(1))
    opens = s.or_(s.eq(token, s.text("{")), s.eq(token, s.text("[")))
    closes = s.or_(s.eq(token, s.text("}")), s.eq(token, s.text("]")))
    step = s.case(
        (opens, s.struct(t=s.concat(text, token, line(deeper)), d=deeper)),
        (closes, s.struct(t=s.concat(text, line(out), token), d=out)),
        (s.eq(token, s.text(",")), s.struct(t=s.concat(text, token, line(depth)), d=depth)),
        (s.eq(token, s.text(":")), s.struct(t=s.concat(text, s.text(": ")), d=depth)),
        otherwise=s.struct(t=s.concat(text, token), d=depth),
    )
    start = s.struct(t=s.text(""), d=s.big(s.num(0)))
    return s.field(s.call("LIST_REDUCE", tokens, s.lambda_(("pp0", "pt0"), step), start), "t")


#: The maximum nesting of a contained document: SQL expressions have no recursion.
_LAYERS = 4


def _contains(left: Ast, right: Ast) -> Ast:
    """Containment as in PostgreSQL, where an array also contains a scalar."""
    alone = s.and_(
        j.is_kind(left, "ARRAY"),
        s.not_(j.is_kind(right, "ARRAY")),
        s.not_(j.is_kind(right, "OBJECT")),
    )
    member = s.call("LIST_CONTAINS", j.elements(left), right)
    return s.case((alone, member), otherwise=_holds(left, right, 0))


def _holds(left: Ast, right: Ast, depth: int) -> Ast:
    """Whether every member on the right is contained in one on the left, in an object under the same key."""
    equal = s.eq(left, right)
    if depth == _LAYERS:
        return equal
    left_name, right_name = f"hl{depth}", f"hr{depth}"
    mine, theirs = s.variable(left_name), s.variable(right_name)
    inner = _holds(s.field(mine, "value"), s.field(theirs, "value"), depth + 1)
    same_key = s.eq(s.field(mine, "key"), s.field(theirs, "key"))
    matching = s.call(
        "LIST_FILTER",
        _members(left, f"hm{depth}"),
        s.lambda_((left_name,), s.and_(same_key, inner)),
    )
    missing = s.call(
        "LIST_FILTER",
        _members(right, f"hn{depth}"),
        s.lambda_((right_name,), s.eq(s.call("LEN", matching), s.num(0))),
    )
    nested = s.and_(
        s.eq(j.kind(left), j.kind(right)),
        s.or_(j.is_kind(left, "OBJECT"), j.is_kind(left, "ARRAY")),
    )
    return s.case(
        (equal, s.boolean(True)),
        (nested, s.eq(s.call("LEN", missing), s.num(0))),
        otherwise=s.boolean(False),
    )


def _members(json: Ast, name: str) -> Ast:
    """The entries of an object, or elements of an array (with an empty key), as structs (key, value)."""
    unnamed = s.struct(key=s.text(""), value=s.variable(name))
    items = s.call("LIST_TRANSFORM", j.elements(json), s.lambda_((name,), unnamed))
    return s.case((j.is_kind(json, "OBJECT"), j.entries(json, name)), otherwise=items)


def _contained(left: Ast, right: Ast) -> Ast:
    return _contains(right, left)


def _too_deep(part: int) -> ErrorRule:
    """The error for a contained document nested too deeply."""

    def condition(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        j.duckdb(engine)
        bare = s.call(
            "REGEXP_REPLACE",
            args[part].ast,
            s.text('"(?:[^"\\\\]|\\\\.)*"|[^\\[\\]{}"]'),
            s.text(""),
            s.text("g"),
        )
        # Remove innermost brackets layer by layer: nothing may remain.
        for _ in range(_LAYERS):
            bare = s.call("REGEXP_REPLACE", bare, s.text("\\[\\]|\\{\\}"), s.text(""), s.text("g"))
        return s.neq(bare, s.text(""))

    return ErrorRule(
        condition, f"containment of a jsonb of more than {_LAYERS} layers is not supported"
    )


_PATHS = [
    _func("jsonb_get_path", "#>", (JSONB, _PATH), JSONB, _only(_path), "({0} #> {1})"),
    _func(
        "jsonb_get_path_text",
        "#>>",
        (JSONB, _PATH),
        TEXT,
        _only(lambda a, b: j.shown(_path(a, b))),
        "({0} #>> {1})",
    ),
]


def _any_key(json: Ast, keys: Ast) -> Ast:
    found = s.call("LIST_FILTER", keys, s.lambda_(("ak0",), _has_key(json, s.variable("ak0"))))
    return s.gt(s.call("LEN", found), s.num(0))


def _all_keys(json: Ast, keys: Ast) -> Ast:
    there = s.or_(_has_key(json, s.variable("ak1")), s.is_null(s.variable("ak1")))
    missing = s.call("LIST_FILTER", keys, s.lambda_(("ak1",), s.not_(there)))
    return s.eq(s.call("LEN", missing), s.num(0))


def _without_keys(json: Ast, keys: Ast) -> Ast:
    state, key = s.variable("wm0"), s.variable("wm1")
    one = s.case((s.is_null(key), state), otherwise=_without_key(state, key))
    return s.call("LIST_REDUCE", keys, s.lambda_(("wm0", "wm1"), one), json)


_EDITING: tuple[ScalarFunc, ...] = (
    _func(
        "jsonb_contains_any",
        "?|",
        (JSONB, _PATH),
        BOOLEAN,
        _only(_strictly(_any_key)),
        "({0} ?| {1})",
    ),
    _func(
        "jsonb_contains_all",
        "?&",
        (JSONB, _PATH),
        BOOLEAN,
        _only(_strictly(_all_keys)),
        "({0} ?& {1})",
    ),
    _func(
        "jsonb_delete_keys",
        "-",
        (JSONB, _PATH),
        JSONB,
        _only(_strictly(_without_keys)),
        "({0} - {1})",
    ),
    _func(
        "jsonb_delete_path",
        "#-",
        (JSONB, _PATH),
        JSONB,
        e.delete_at,
        "({0} #- {1})",
        errors=(e.HOLDER_DELETED, e.NUMBERED),
    ),
    *(
        _func(
            f"jsonb_set{suffix}",
            "jsonb_set",
            (JSONB, _PATH, JSONB, *more),
            JSONB,
            e.set_at,
            errors=(e.HOLDER, e.NUMBERED),
        )
        for suffix, more in (("", ()), ("_create", (BOOLEAN,)))
    ),
    *(
        _func(
            f"jsonb_insert{suffix}",
            "jsonb_insert",
            (JSONB, _PATH, JSONB, *more),
            JSONB,
            e.insert_at,
            errors=(e.HOLDER, e.NUMBERED, e.NEW),
        )
        for suffix, more in (("", ()), ("_after", (BOOLEAN,)))
    ),
    _func("jsonb_object", "jsonb_object", (_PATH,), JSONB, e.object_of_texts, errors=(e.ODD,)),
    _func(
        "jsonb_object_pairs",
        "jsonb_object",
        (SqlType("array", element=_PATH),),
        JSONB,
        e.object_of_texts,
    ),
    _func(
        "jsonb_object_keys_values",
        "jsonb_object",
        (_PATH, _PATH),
        JSONB,
        e.object_of_texts,
        errors=(e.UNEVEN,),
    ),
    *(
        ScalarFunc(
            key=f"{op}_jsonb",
            name=OPERATORS[op][0],
            args=(JSONB, JSONB),
            result=BOOLEAN,
            value=e.compared(OPERATORS[op][2]),
            explain=f"({{0}} {OPERATORS[op][0]} {{1}})",
            negation=f"{OPERATORS[op][1]}_jsonb",
        )
        for op in ("lt", "lte", "gt", "gte")
    ),
    # What ORDER BY orders documents by: engines have them as texts.
    ScalarFunc(
        key="jsonb_order_key",
        name="jsonb_order_key",
        args=(JSONB,),
        result=TEXT,
        value=e.ordered,
    ),
)

FUNCTIONS: tuple[ScalarFunc, ...] = (
    *_EDITING,
    _func("jsonb_get_string", "->", (JSONB, TEXT), JSONB, _only(j.field), "({0} -> {1})"),
    _func("jsonb_get_int64", "->", (JSONB, BIGINT), JSONB, _only(j.numbered), "({0} -> {1})"),
    _func(
        "jsonb_get_string_text",
        "->>",
        (JSONB, TEXT),
        TEXT,
        _only(lambda a, b: j.shown(j.field(a, b))),
        "({0} ->> {1})",
    ),
    _func(
        "jsonb_get_int64_text",
        "->>",
        (JSONB, BIGINT),
        TEXT,
        _only(lambda a, b: j.shown(j.numbered(a, b))),
        "({0} ->> {1})",
    ),
    *_PATHS,
    _func(
        "jsonb_contains_string",
        "?",
        (JSONB, TEXT),
        BOOLEAN,
        _only(_strictly(_has_key)),
        "({0} ? {1})",
        nulls=False,
    ),
    _func(
        "jsonb_contains_jsonb",
        "@>",
        (JSONB, JSONB),
        BOOLEAN,
        _only(_strictly(_contains)),
        "({0} @> {1})",
        nulls=False,
        errors=(_too_deep(1),),
    ),
    _func(
        "jsonb_contained_jsonb",
        "<@",
        (JSONB, JSONB),
        BOOLEAN,
        _only(_strictly(_contained)),
        "({0} <@ {1})",
        nulls=False,
        errors=(_too_deep(0),),
    ),
    _func("jsonb_concat", "||", (JSONB, JSONB), JSONB, _only(_strictly(_concat)), "({0} || {1})"),
    _func(
        "jsonb_delete_string",
        "-",
        (JSONB, TEXT),
        JSONB,
        _only(_strictly(_without_key)),
        "({0} - {1})",
    ),
    _func(
        "jsonb_delete_int64",
        "-",
        (JSONB, BIGINT),
        JSONB,
        _only(_strictly(_without_element)),
        "({0} - {1})",
    ),
    _func("jsonb_typeof", "jsonb_typeof", (JSONB,), TEXT, _only(_typeof), nulls=False),
    _func("jsonb_array_length", "jsonb_array_length", (JSONB,), INTEGER, _only(j.length)),
    _func("jsonb_pretty", "jsonb_pretty", (JSONB,), TEXT, _only(_pretty), nulls=False),
    _func(
        "jsonb_strip_nulls",
        "jsonb_strip_nulls",
        (JSONB,),
        JSONB,
        _only(lambda a: j.canonical(a, strip=True)),
        nulls=False,
    ),
    _func("to_jsonb", "to_jsonb", (ANY,), JSONB, _to_jsonb, "jsonbable_to_jsonb({0})", nulls=False),
    _func(
        "jsonb_build_array",
        "jsonb_build_array",
        (),
        JSONB,
        _build_array,
        nulls=False,
        variadic=ANY,
        strict=False,
    ),
    _func(
        "jsonb_build_object",
        "jsonb_build_object",
        (),
        JSONB,
        _build_object,
        nulls=False,
        variadic=ANY,
        strict=False,
        errors=(ErrorRule(_null_key, "key cannot be null"),),
    ),
)
