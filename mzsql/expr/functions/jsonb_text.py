"""jsonb as text: how a document is read, built and taken apart in SQL.

Promise: a jsonb is carried as its one canonical text: no blanks, an object's keys in the order of their bytes and each once (the last value
given for it), numbers in plain notation without zeros at the end. So equal documents are equal texts, and what is put together here is
canonical if its parts are. DuckDB reads and writes it; a dataflow on Spark over what these functions make says that it cannot.
"""

from __future__ import annotations

from sqlglot import expressions as exp

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.declare import Ast, of
from mzsql.expr.functions.table import Engine
from mzsql.repr.errors import Unsupported
from mzsql.repr.types import SqlType

_PIECES = '"(?:[^"\\\\]|\\\\.)*"|[\\[\\]{},:]|[^\\[\\]{},:"\\s]+'
_TEXTS = SqlType("array", element=of("text"))


def duckdb(engine: Engine, what: str = "jsonb") -> None:
    """Fail where the engine is not DuckDB."""
    if engine is not Engine.DUCKDB:
        raise Unsupported(
            f"a function over {what} cannot be maintained by a dataflow yet",
            hint="A SELECT of it runs; so does one over a view that is not materialized.",
        )


def kind(json: Ast) -> Ast:
    """OBJECT, ARRAY, VARCHAR, BOOLEAN, NULL, or one of several of numbers."""
    return s.call("JSON_TYPE", json)


def is_kind(json: Ast, name: str) -> Ast:
    """Whether a document is of a kind."""
    return s.eq(kind(json), s.text(name))


def quoted(text: Ast) -> Ast:
    """A text as a JSON string."""
    return s.string(s.call("TO_JSON", s.string(text)))


def unquoted(json: Ast) -> Ast:
    """The text that a JSON string stands for."""
    return s.call("JSON_EXTRACT_STRING", json, s.text("$"))


def _extract(json: Ast, key: Ast) -> Ast:
    escaped = s.call(
        "REPLACE", s.call("REPLACE", key, s.text("~"), s.text("~0")), s.text("/"), s.text("~1")
    )
    return s.string(s.call("JSON_EXTRACT", json, s.concat(s.text("/"), escaped)))


def field(json: Ast, key: Ast) -> Ast:
    """An object's value; NULL where there is none, or no object."""
    return s.case((is_kind(json, "OBJECT"), _extract(json, key)))


def length(json: Ast) -> Ast:
    """An array's length; NULL of what is none."""
    return s.case((is_kind(json, "ARRAY"), s.integer(s.call("JSON_ARRAY_LENGTH", json))))


def element(json: Ast, index: Ast) -> Ast:
    """An array's element, counted from 0, negative ones from its end."""
    size = s.big(length(json))
    place = s.case((s.lt(index, s.num(0)), s.add(s.big(index), size)), otherwise=s.big(index))
    inside = s.and_(s.gte(place, s.num(0)), s.lt(place, size))
    return s.case((inside, _extract(json, s.string(place))))


def numbered(json: Ast, index: Ast) -> Ast:
    """What ``->`` finds by a number: an array's element; what holds nothing is the only element of itself, as in PostgreSQL."""
    holds = s.or_(is_kind(json, "ARRAY"), is_kind(json, "OBJECT"))
    only = s.or_(s.eq(index, s.num(0)), s.eq(index, s.num(-1)))
    return s.case((s.and_(s.not_(holds), only), json), otherwise=element(json, index))


def shown(json: Ast) -> Ast:
    """The text of ``->>``: a string without its quotes, null as NULL."""
    return s.case(
        (is_kind(json, "NULL"), exp.cast(s.null(), exp.DType.TEXT)),
        (is_kind(json, "VARCHAR"), unquoted(json)),
        otherwise=json,
    )


def elements(json: Ast) -> Ast:
    """An array's elements as a list; NULL of what is none."""
    listed = s.cast(s.call("JSON_EXTRACT", json, s.text("$[*]")), _TEXTS, Engine.DUCKDB)
    return s.case((is_kind(json, "ARRAY"), listed))


def keys(json: Ast) -> Ast:
    """An object's keys as a list; NULL of what is none."""
    return s.case((is_kind(json, "OBJECT"), s.call("JSON_KEYS", json)))


def entries(json: Ast, name: str = "je0") -> Ast:
    """An object's entries as structs (key, value); NULL of what is none."""
    key = s.variable(name)
    pair = s.struct(key=key, value=_extract(json, key))
    return s.call("LIST_TRANSFORM", keys(json), s.lambda_((name,), pair))


def array_of(items: Ast) -> Ast:
    """The array of a list of documents."""
    joined = s.coalesce(s.call("ARRAY_TO_STRING", items, s.text(",")), s.text(""))
    return s.concat(s.text("["), joined, s.text("]"))


def object_of(pairs: Ast, depth: str = "0") -> Ast:
    """The object of a list of structs (key, value)."""
    k, e, f = (f"{lead}{depth}" for lead in ("ok", "oe", "of"))
    names = s.call("LIST_TRANSFORM", pairs, s.lambda_((e,), s.field(s.variable(e), "key")))
    ordered = s.call("LIST_SORT", s.call("LIST_DISTINCT", names))
    same = s.lambda_((f,), s.eq(s.field(s.variable(f), "key"), s.variable(k)))
    last = s.call("LIST_EXTRACT", s.call("LIST_FILTER", pairs, same), s.num(-1))
    text = s.concat(quoted(s.variable(k)), s.text(":"), s.field(last, "value"))
    items = s.call("LIST_TRANSFORM", ordered, s.lambda_((k,), text))
    joined = s.coalesce(s.call("ARRAY_TO_STRING", items, s.text(",")), s.text(""))
    return s.concat(s.text("{"), joined, s.text("}"))


# --- reading -------------------------------------------------------------------------------------


def _scalar(token: Ast) -> Ast:
    """A string or a number in its canonical form."""
    number = s.matches(token, "^-?[0-9].*[.eE]", Engine.DUCKDB)
    plain = s.string(s.try_cast_to(token, s.decimal_type(38, 18)))
    trimmed = s.call("RTRIM", s.call("RTRIM", plain, s.text("0")), s.text("."))
    return s.case(
        (s.call("STARTS_WITH", token, s.text('"')), quoted(unquoted(token))),
        (number, s.coalesce(trimmed, token)),
        (s.eq(token, s.text("-0")), s.text("0")),
        otherwise=token,
    )


def _closed(stack: Ast, opening: str, *, strip: bool) -> Ast:
    """The stack after a closing bracket: all behind the last opening one has become one document."""
    reverse = s.call("LIST_REVERSE", stack)
    inside = s.sub(s.call("LIST_POSITION", reverse, s.text(opening)), s.num(1))
    size = s.call("LEN", stack)
    start = s.sub(size, inside)
    items = s.case(
        (s.gt(inside, s.num(0)), s.call("LIST_SLICE", stack, s.add(start, s.num(1)), size))
    )
    below = s.case(
        (s.gt(start, s.num(1)), s.call("LIST_SLICE", stack, s.num(1), s.sub(start, s.num(1))))
    )
    none = s.cast(s.array(), _TEXTS, Engine.DUCKDB)
    made = array_of(s.coalesce(items, none))
    if opening == "{":
        made = _object(s.coalesce(items, none), strip=strip)
    return s.call("LIST_APPEND", s.coalesce(below, none), made)


def _object(items: Ast, *, strip: bool) -> Ast:
    place = s.variable("jp0")
    key = unquoted(s.call("LIST_EXTRACT", items, place))
    pair = s.struct(key=key, value=s.call("LIST_EXTRACT", items, s.add(place, s.num(1))))
    numbers = s.call("RANGE", s.num(1), s.call("LEN", items), s.num(2))
    pairs = s.call("LIST_TRANSFORM", numbers, s.lambda_(("jp0",), pair))
    if strip:
        there = s.neq(s.field(s.variable("jp1"), "value"), s.text("null"))
        pairs = s.call("LIST_FILTER", pairs, s.lambda_(("jp1",), there))
    return object_of(pairs, "9")


def canonical(text: Ast, *, strip: bool = False) -> Ast:
    """The canonical text of a document; NULL of what is none. With `strip`, without the entries that are null."""
    tokens = s.call("REGEXP_EXTRACT_ALL", text, s.text(_PIECES))
    stack, token = s.variable("js0"), s.variable("jt0")
    step = s.case(
        (s.eq(token, s.text("}")), _closed(stack, "{", strip=strip)),
        (s.eq(token, s.text("]")), _closed(stack, "[", strip=strip)),
        (s.or_(s.eq(token, s.text(",")), s.eq(token, s.text(":"))), stack),
        otherwise=s.call("LIST_APPEND", stack, _scalar(token)),
    )
    none = s.cast(s.array(), _TEXTS, Engine.DUCKDB)
    folded = s.call("LIST_REDUCE", tokens, s.lambda_(("js0", "jt0"), step), none)
    return s.case((is_document(text), s.call("LIST_EXTRACT", folded, s.num(1))))


def is_document(text: Ast) -> Ast:
    """Whether a text is JSON; DuckDB lets a comma stand at the end, NaN and Infinity, which are not."""
    bare = s.call(
        "REGEXP_REPLACE", text, s.text('"(?:[^"\\\\]|\\\\.)*"'), s.text('""'), s.text("g")
    )
    lenient = s.matches(bare, ",\\s*[\\]}]|[nN][aA]N|[iI]nf", Engine.DUCKDB)
    return s.and_(s.call("JSON_VALID", text), s.not_(lenient))
