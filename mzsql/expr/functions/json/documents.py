"""jsonb as text: parsing, building and taking apart documents in SQL.

Promise: a jsonb is carried as its one canonical text: no blanks, an object's keys in byte order and each once (with its
last value), numbers in plain notation without trailing zeros. So equal documents are equal texts, and a document built
here is canonical if its parts are. DuckDB does all of this; a dataflow on Spark over these functions is refused.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import expressions as exp

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.declare import Ast, of
from mzsql.expr.functions.entries import last_of_each
from mzsql.expr.functions.table import Engine
from mzsql.repr.errors import Unsupported
from mzsql.repr.jsonb import DIGITS, WRITTEN_DIGITS
from mzsql.repr.types import SqlType

_PIECES = '"(?:[^"\\\\]|\\\\.)*"|[\\[\\]{},:]|[^\\[\\]{},:"\\s]+'
#: Larger exponents are treated as this one.
_FAR = 1_000_000_000
_TEXTS = SqlType("array", element=of("text"))


def duckdb(engine: Engine, what: str = "jsonb") -> None:
    """Refuse any engine but DuckDB.

    Raises:
        Unsupported: the engine is Spark.
    """
    if engine is not Engine.DUCKDB:
        raise Unsupported(
            f"a function over {what} cannot be maintained by a dataflow yet",
            hint="A SELECT of it runs; so does one over a view that is not materialized.",
        )


def kind(json: Ast) -> Ast:
    """The document's kind: OBJECT, ARRAY, VARCHAR, BOOLEAN, NULL, or one of several for numbers."""
    return s.call("JSON_TYPE", json)


def is_kind(json: Ast, name: str) -> Ast:
    """Whether a document is of this kind."""
    return s.eq(kind(json), s.text(name))


def quoted(text: Ast) -> Ast:
    """A text as a JSON string."""
    return s.string(s.call("TO_JSON", s.string(text)))


def unquoted(json: Ast) -> Ast:
    """The text of a JSON string."""
    return s.call("JSON_EXTRACT_STRING", json, s.text("$"))


def _extract(json: Ast, key: Ast) -> Ast:
    escaped = s.call(
        "REPLACE", s.call("REPLACE", key, s.text("~"), s.text("~0")), s.text("/"), s.text("~1")
    )
    return s.string(s.call("JSON_EXTRACT", json, s.concat(s.text("/"), escaped)))


def field(json: Ast, key: Ast) -> Ast:
    """The value under a key of an object; NULL if it is missing, or for another kind."""
    return s.case((is_kind(json, "OBJECT"), _extract(json, key)))


def length(json: Ast) -> Ast:
    """The length of an array; NULL for another kind."""
    return s.case((is_kind(json, "ARRAY"), s.integer(s.call("JSON_ARRAY_LENGTH", json))))


def element(json: Ast, index: Ast) -> Ast:
    """The element of an array at an index, from 0; negative ones count from the end."""
    size = s.big(length(json))
    place = s.case((s.lt(index, s.num(0)), s.add(s.big(index), size)), otherwise=s.big(index))
    inside = s.and_(s.gte(place, s.num(0)), s.lt(place, size))
    return s.case((inside, _extract(json, s.string(place))))


def numbered(json: Ast, index: Ast) -> Ast:
    """The result of ``->`` with a number: an element of an array; a scalar is its own only element, as in PostgreSQL."""
    holds = s.or_(is_kind(json, "ARRAY"), is_kind(json, "OBJECT"))
    only = s.or_(s.eq(index, s.num(0)), s.eq(index, s.num(-1)))
    return s.case((s.and_(s.not_(holds), only), json), otherwise=element(json, index))


def shown(json: Ast) -> Ast:
    """The result of ``->>``: a string without quotes, null as NULL."""
    return s.case(
        (is_kind(json, "NULL"), exp.cast(s.null(), exp.DType.TEXT)),
        (is_kind(json, "VARCHAR"), unquoted(json)),
        otherwise=json,
    )


def elements(json: Ast) -> Ast:
    """The elements of an array as a list; NULL for another kind."""
    listed = s.cast(s.call("JSON_EXTRACT", json, s.text("$[*]")), _TEXTS, Engine.DUCKDB)
    return s.case((is_kind(json, "ARRAY"), listed))


def keys(json: Ast) -> Ast:
    """The keys of an object as a list; NULL for another kind."""
    return s.case((is_kind(json, "OBJECT"), s.call("JSON_KEYS", json)))


def entries(json: Ast, name: str = "je0") -> Ast:
    """The entries of an object as structs (key, value); NULL for another kind."""
    key = s.variable(name)
    pair = s.struct(key=key, value=_extract(json, key))
    return s.call("LIST_TRANSFORM", keys(json), s.lambda_((name,), pair))


def array_of(items: Ast, engine: Engine = Engine.DUCKDB) -> Ast:
    """The array of a list of documents."""
    join = "ARRAY_JOIN" if engine is Engine.SPARK else "ARRAY_TO_STRING"
    joined = s.coalesce(s.call(join, items, s.text(",")), s.text(""))
    return s.concat(s.text("["), joined, s.text("]"))


def object_of(pairs: Ast, depth: str = "0") -> Ast:
    """The object of a list of structs (key, value); the last value of a key counts."""
    k = f"ok{depth}"
    entry = s.variable(k)
    text = s.concat(quoted(s.field(entry, "key")), s.text(":"), s.field(entry, "value"))
    items = s.call("LIST_TRANSFORM", last_of_each(pairs, f"o{depth}"), s.lambda_((k,), text))
    joined = s.coalesce(s.call("ARRAY_TO_STRING", items, s.text(",")), s.text(""))
    return s.concat(s.text("{"), joined, s.text("}"))


# --- reading -------------------------------------------------------------------------------------


def _scalar(token: Ast) -> Ast:
    """A string or number in canonical form."""
    number = s.matches(token, "^-?[0-9].*[.eE]", Engine.DUCKDB)
    return s.case(
        (s.call("STARTS_WITH", token, s.text('"')), quoted(unquoted(token))),
        (number, _plain(token)),
        (s.eq(token, s.text("-0")), s.text("0")),
        otherwise=token,
    )


def _plain(token: Ast) -> Ast:
    """A number in plain notation, with the digits that `mzsql.repr.jsonb` keeps."""
    digits, place = s.variable("jn0"), s.variable("jn1")
    whole = s.call("SUBSTR", digits, s.num(1), place)
    whole = s.call("LTRIM", s.call("RPAD", whole, s.integer(place), s.text("0")), s.text("0"))
    whole = s.case((s.gt(place, s.num(0)), whole), otherwise=s.text(""))
    zeros = s.call("REPEAT", s.text("0"), s.sub(s.num(0), place))
    behind = s.case(
        (s.gt(place, s.num(0)), s.call("SUBSTR", digits, s.add(place, s.num(1)))),
        otherwise=s.concat(zeros, digits),
    )
    behind = s.call("SUBSTR", behind, s.num(1), s.num(WRITTEN_DIGITS))
    behind = s.call("RTRIM", behind, s.text("0"))
    fraction, integral = s.variable("jn2"), s.variable("jn3")
    sign = s.case((s.call("STARTS_WITH", token, s.text("-")), s.text("-")), otherwise=s.text(""))
    point = s.case((s.neq(fraction, s.text("")), s.concat(s.text("."), fraction)))
    shown = s.concat(
        sign,
        s.coalesce(s.nullif(integral, s.text("")), s.text("0")),
        s.coalesce(point, s.text("")),
    )
    nothing = s.and_(s.eq(fraction, s.text("")), s.eq(integral, s.text("")))
    made = s.case((nothing, s.text("0")), otherwise=shown)
    made = s.let(whole, "jn3", s.let(behind, "jn2", made, Engine.DUCKDB), Engine.DUCKDB)
    # Beyond this there are only zeros, or `is_document` has refused it.
    bounded = s.at_most(
        s.at_least(_place(token), s.num(-WRITTEN_DIGITS - 1)), s.num(WRITTEN_DIGITS)
    )
    return s.let(_digits(token), "jn0", s.let(bounded, "jn1", made, Engine.DUCKDB), Engine.DUCKDB)


def _group(token: Ast, pattern: str) -> Ast:
    return s.call("REGEXP_EXTRACT", token, s.text(pattern), s.num(1))


def _digits(token: Ast) -> Ast:
    """The digits of a number without decimal point and exponent."""
    return s.concat(_group(token, "^-?([0-9]+)"), _group(token, "[.]([0-9]+)"))


def _place(token: Ast) -> Ast:
    """The number of digits before the decimal point after applying the exponent; bounded for huge exponents."""
    exponent = _group(token, "[eE][+]?(-?[0-9]+)$")
    negative = s.call("STARTS_WITH", exponent, s.text("-"))
    far = s.case((negative, s.num(-_FAR)), otherwise=s.num(_FAR))
    counted = s.try_cast_to(s.nullif(exponent, s.text("")), s.typed(exp.DType.BIGINT))
    counted = s.at_most(s.at_least(s.coalesce(counted, far), s.num(-_FAR)), s.num(_FAR))
    by = s.case((s.eq(exponent, s.text("")), s.num(0)), otherwise=counted)
    return s.add(s.call("LENGTH", _group(token, "^-?([0-9]+)")), by)


def _too_large(token: Ast) -> Ast:
    """Whether a number has more digits before the decimal point than a numeric, or a huge exponent."""
    digits, kept = s.variable("jw0"), s.variable("jw1")
    leading = s.sub(s.call("LENGTH", digits), s.call("LENGTH", kept))
    whole = s.sub(_place(token), leading)
    written = s.call("LENGTH", s.call("RTRIM", kept, s.text("0")))
    large = s.or_(
        s.gt(whole, s.num(DIGITS)),
        s.and_(s.eq(whole, s.num(DIGITS)), s.gt(written, s.num(DIGITS))),
    )
    large = s.and_(s.neq(kept, s.text("")), large)
    significant = s.call("LTRIM", digits, s.text("0"))
    beyond = s.matches(token, "[eE][+-]?0*[1-9][0-9]{18}", Engine.DUCKDB)
    found = s.let(
        _digits(token), "jw0", s.let(significant, "jw1", large, Engine.DUCKDB), Engine.DUCKDB
    )
    return s.or_(beyond, found)


def closed(stack: Ast, opening: str, build: Callable[[Ast], Ast]) -> Ast:
    """The stack of a document's pieces after a closing bracket: those from the last opening one on become one piece."""
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
    made = build(s.coalesce(items, none))
    return s.call("LIST_APPEND", s.coalesce(below, none), made)


def folded(tokens: Ast, name: str, step: Callable[[Ast, Ast], Ast]) -> Ast:
    """The result of folding a document's tokens with ``step``, over a stack."""
    none = s.cast(s.array(), _TEXTS, Engine.DUCKDB)
    stack, token = f"{name}s", f"{name}t"
    body = step(s.variable(stack), s.variable(token))
    left = s.call("LIST_REDUCE", tokens, s.lambda_((stack, token), body), none)
    return s.call("LIST_EXTRACT", left, s.num(1))


def tokens(json: Ast) -> Ast:
    """The tokens of a document: strings, brackets, commas, colons, numbers and words."""
    return s.call("REGEXP_EXTRACT_ALL", json, s.text(_PIECES))


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
    """The canonical text of a document; NULL if it is none. With ``strip``, without null entries."""

    def step(stack: Ast, token: Ast) -> Ast:
        return s.case(
            (
                s.eq(token, s.text("}")),
                closed(stack, "{", lambda items: _object(items, strip=strip)),
            ),
            (s.eq(token, s.text("]")), closed(stack, "[", array_of)),
            (s.or_(s.eq(token, s.text(",")), s.eq(token, s.text(":"))), stack),
            otherwise=s.call("LIST_APPEND", stack, _scalar(token)),
        )

    return s.case((is_document(text), folded(tokens(text), "jc", step)))


def is_document(text: Ast) -> Ast:
    """Whether a text is JSON. DuckDB also accepts a trailing comma, NaN and Infinity, which are not JSON."""
    bare = s.call(
        "REGEXP_REPLACE", text, s.text('"(?:[^"\\\\]|\\\\.)*"'), s.text('""'), s.text("g")
    )
    lenient = s.matches(bare, ",\\s*[\\]}]|[nN][aA]N|[iI]nf", Engine.DUCKDB)
    tokens = s.call("REGEXP_EXTRACT_ALL", bare, s.text("-?[0-9][^\\[\\]{},:\\s]*"))
    large = s.call("LIST_FILTER", tokens, s.lambda_(("jw2",), _too_large(s.variable("jw2"))))
    wide = s.and_(
        s.matches(bare, f"[0-9]{{{DIGITS}}}|[0-9][eE]", Engine.DUCKDB),
        s.gt(s.call("LEN", large), s.num(0)),
    )
    return s.and_(s.call("JSON_VALID", text), s.not_(lenient), s.not_(wide))
