"""Ranges: constructors, operators, and parsing from text.

Promise: PostgreSQL's results and messages; for a text that is no range, Materialize's reason. Operators work on the parts of both ranges,
each computed once. Texts are parsed in DuckDB only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.cast.declared import declared
from mzsql.expr.functions.comparison import ANY
from mzsql.expr.functions.container.casts import element_cast, element_error
from mzsql.expr.functions.container.polymorphic import ELEMENT, RANGE
from mzsql.expr.functions.container.range_values import (
    Given,
    Parts,
    adjacent,
    as_bound,
    element,
    empty,
    of_ends,
    overlap,
    present,
)
from mzsql.expr.functions.declare import Ast, duckdb_only
from mzsql.expr.functions.number.numeric import OVERFLOW
from mzsql.expr.functions.output.to_text import text_of
from mzsql.expr.functions.table import Engine, ErrorRule, ScalarFunc, Spelling, Sql
from mzsql.repr.ranges import BOUNDS, DISCRETE, MISORDERED
from mzsql.repr.types import BOOLEAN, RANGES, TEXT, SqlType, type_name

# --- operators -----------------------------------------------------------------------------------

_Pair = Callable[[Parts, Parts], Ast]


def _first(args: Sequence[SqlType]) -> SqlType:
    return args[0]


def _pair(build: _Pair) -> Spelling:
    """A spelling over two non-NULL ranges, each computed once."""

    def value(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        both = s.struct(a=args[0].ast, b=args[1].ast)
        name = s.variable("rg0")
        left, right = (
            Parts(s.field(name, part), arg.typ, engine)
            for part, arg in zip(("a", "b"), args, strict=True)
        )
        known = s.and_(s.is_not_null(left.ast), s.is_not_null(right.ast))
        return s.let(both, "rg0", s.case((known, build(left, right))), engine)

    return value


def _contains(left: Parts, right: Parts) -> Ast:
    inside = s.and_(s.lte(left.lower_end, right.lower_end), s.gte(left.upper_end, right.upper_end))
    return s.or_(right.empty, s.and_(present(left, right), inside))


def _swapped(build: _Pair) -> _Pair:
    return lambda left, right: build(right, left)


def _before(left: Parts, right: Parts) -> Ast:
    return s.and_(present(left, right), s.not_(right.reaches(left)))


def _not_right(left: Parts, right: Parts) -> Ast:
    return s.and_(present(left, right), s.lte(left.upper_end, right.upper_end))


def _not_left(left: Parts, right: Parts) -> Ast:
    return s.and_(present(left, right), s.gte(left.lower_end, right.lower_end))


def _merged(left: Parts, right: Parts) -> Ast:
    """The smallest range that contains both."""
    low = s.lte(left.lower_end, right.lower_end)
    high = s.gte(left.upper_end, right.upper_end)
    return s.case(
        (left.empty, right.ast),
        (right.empty, left.ast),
        (s.and_(low, high), left.ast),
        (low, of_ends(left, right)),
        (high, of_ends(right, left)),
        otherwise=right.ast,
    )


def _apart(left: Parts, right: Parts) -> Ast:
    return s.and_(present(left, right), s.not_(s.or_(overlap(left, right), adjacent(left, right))))


def _common(left: Parts, right: Parts) -> Ast:
    low = s.gte(left.lower_end, right.lower_end)
    high = s.lte(left.upper_end, right.upper_end)
    return s.case(
        (s.not_(overlap(left, right)), empty(left.typ, left.engine)),
        (s.and_(low, high), left.ast),
        (low, of_ends(left, right)),
        (high, of_ends(right, left)),
        otherwise=right.ast,
    )


def _split(left: Parts, right: Parts) -> Ast:
    """Whether the right range lies strictly inside the left one, so that subtraction would leave two."""
    inside = s.and_(s.lt(left.lower_end, right.lower_end), s.gt(left.upper_end, right.upper_end))
    return s.and_(present(left, right), inside)


def _difference(left: Parts, right: Parts) -> Ast:
    begins, ends = (
        s.gte(left.lower_end, right.lower_end),
        s.lte(left.upper_end, right.upper_end),
    )
    head = s.struct(
        lower_rank=left.part("lower_rank"),
        lower=left.part("lower"),
        lower_exclusive=left.part("lower_exclusive"),
        upper_rank=s.num(1),
        upper=right.part("lower"),
        upper_inclusive=right.part("lower_exclusive"),
    )
    tail = s.struct(
        lower_rank=s.num(2),
        lower=right.part("upper"),
        lower_exclusive=right.part("upper_inclusive"),
        upper_rank=left.part("upper_rank"),
        upper=left.part("upper"),
        upper_inclusive=left.part("upper_inclusive"),
    )
    return s.case(
        (s.not_(overlap(left, right)), left.ast),
        (s.and_(begins, ends), empty(left.typ, left.engine)),
        (ends, s.cast(head, left.typ, left.engine)),
        otherwise=s.cast(tail, left.typ, left.engine),
    )


def _operator(
    key: str, symbol: str, build: _Pair, result: SqlType | None = None, *errors: ErrorRule
) -> ScalarFunc:
    return ScalarFunc(
        key=key,
        name=symbol,
        args=(RANGE, RANGE),
        result=_first if result is None else result,
        value=_pair(build),
        explain=f"({{0}} {symbol} {{1}})",
        errors=errors,
    )


def _elementwise() -> list[ScalarFunc]:
    def has(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        both = s.struct(a=args[0].ast, b=args[1].ast)
        name = s.variable("rg0")
        whole = Parts(s.field(name, "a"), args[0].typ, engine)
        value = Sql(s.field(name, "b"), args[1].typ)
        known = s.and_(s.is_not_null(whole.ast), s.is_not_null(value.ast))
        return s.let(both, "rg0", s.case((known, whole.has(value))), engine)

    def within(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
        return has(engine, [args[1], args[0]], typ)

    return [
        ScalarFunc(
            "range_contains_element", "@>", (RANGE, ELEMENT), BOOLEAN, has, explain="({0} @> {1})"
        ),
        ScalarFunc(
            "range_contained_element",
            "<@",
            (ELEMENT, RANGE),
            BOOLEAN,
            within,
            explain="({0} <@ {1})",
        ),
    ]


def _operators() -> list[ScalarFunc]:
    union = ErrorRule(_pair(_apart), "result of range union would not be contiguous")
    split = ErrorRule(_pair(_split), "result of range difference would not be contiguous")
    return [
        _operator("range_contains_range", "@>", _contains, BOOLEAN),
        _operator("range_contained_range", "<@", _swapped(_contains), BOOLEAN),
        _operator("range_overlaps", "&&", overlap, BOOLEAN),
        _operator("range_before", "<<", _before, BOOLEAN),
        _operator("range_after", ">>", _swapped(_before), BOOLEAN),
        _operator("range_overleft", "&<", _not_right, BOOLEAN),
        _operator("range_overright", "&>", _not_left, BOOLEAN),
        _operator("range_adjacent", "-|-", adjacent, BOOLEAN),
        _operator("range_union", "+", _merged, None, union),
        _operator("range_intersection", "*", _common),
        _operator("range_difference", "-", _difference, None, split),
        ScalarFunc("range_merge", "range_merge", (RANGE, RANGE), _first, _pair(_merged)),
    ]


# --- parts ---------------------------------------------------------------------------------------


def _part(name: str, build: Callable[[Parts], Ast], *, bound: bool = False) -> ScalarFunc:
    def value(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        if s.is_simple(args[0].ast):
            return _known(Parts(args[0].ast, args[0].typ, engine))
        whole = Parts(s.variable("rp0"), args[0].typ, engine)
        return s.let(args[0].ast, "rp0", _known(whole), engine)

    def _known(of: Parts) -> Ast:
        return s.case((s.is_not_null(of.ast), build(of)))

    def of_element(args: Sequence[SqlType]) -> SqlType:
        return element(args[0])

    return ScalarFunc(
        key=f"range_{name}",
        name=name,
        args=(RANGE,),
        result=of_element if bound else BOOLEAN,
        value=value,
        explain=f"range{name}({{0}})" if bound else f"{name}({{0}})",
        introduces_nulls=bound,
    )


def _parts() -> list[ScalarFunc]:
    return [
        _part("lower", lambda of: of.part("lower"), bound=True),
        _part("upper", lambda of: of.part("upper"), bound=True),
        _part("isempty", lambda of: of.empty),
        _part(
            "lower_inc",
            lambda of: s.and_(
                s.eq(of.part("lower_rank"), s.num(2)), s.not_(of.part("lower_exclusive"))
            ),
        ),
        _part("upper_inc", lambda of: of.part("upper_inclusive")),
        _part("lower_inf", lambda of: s.eq(of.part("lower_rank"), s.num(1))),
        _part("upper_inf", lambda of: s.eq(of.part("upper_rank"), s.num(2))),
    ]


# --- constructors --------------------------------------------------------------------------------


def _given(args: Sequence[Sql], typ: SqlType, engine: Engine) -> Given:
    flags = args[2].ast if len(args) > 2 else s.text("[)")
    lower_in = s.coalesce(s.eq(s.call("LEFT", flags, s.num(1)), s.text("[")), s.boolean(False))
    upper_in = s.coalesce(s.eq(s.call("RIGHT", flags, s.num(1)), s.text("]")), s.boolean(False))
    lower, upper = (as_bound(arg, typ, engine) for arg in args[:2])
    return Given(lower, upper, lower_in, upper_in, typ, engine)


def _made(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    return _given(args, typ, engine).range()


def _flagged(_engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    return s.is_null(args[2].ast) if len(args) > 2 else s.boolean(False)


def _wrong_flags(_engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    if len(args) < 3:
        return s.boolean(False)
    return s.not_(s.or_(*(s.eq(args[2].ast, s.text(bounds)) for bounds in BOUNDS)))


def _too_fine(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    """Whether a numeric does not fit the precision of a bound."""
    if element(typ).kind != "numeric":
        return s.boolean(False)
    lost = [
        s.and_(s.is_not_null(arg.ast), s.is_null(as_bound(arg, typ, engine))) for arg in args[:2]
    ]
    return s.or_(*lost)


def _end_message(_engine: Engine, _args: Sequence[Sql], typ: SqlType) -> Ast:
    return s.text(f"{DISCRETE.get(element(typ).kind, type_name(element(typ)))} out of range")


def _constructors() -> list[ScalarFunc]:
    def misordered(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
        return _given(args, typ, engine).misordered

    def overflows(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
        return _given(args, typ, engine).overflows

    rules = (
        ErrorRule(_flagged, "range constructor flags argument must not be null"),
        ErrorRule(_wrong_flags, "invalid range bound flags"),
        ErrorRule(_too_fine, OVERFLOW),
        ErrorRule(misordered, MISORDERED),
        ErrorRule(overflows, _end_message),
    )
    made: list[ScalarFunc] = []
    for name, typ in RANGES.items():
        bound = element(typ)
        for key, args in ((name, (bound, bound)), (f"{name}_bounds", (bound, bound, TEXT))):
            made.append(
                ScalarFunc(
                    key=key,
                    name=name,
                    args=args,
                    result=typ,
                    value=_made,
                    explain=f"{name}({', '.join(f'{{{i}}}' for i in range(len(args)))})",
                    strict=False,
                    errors=rules,
                )
            )
    return made


# --- texts ---------------------------------------------------------------------------------------

_SPACES = "[ \\t\\n\\r\\f\\x0b]*"
_BOUND = '(?:"(?:[^"\\\\]|\\\\.|"")*"|\\\\.|[^"\\\\,)\\]])*'
_WHOLE = f"(?s)^{_SPACES}([\\[(])({_BOUND}),({_BOUND})([\\])]){_SPACES}$"
_EMPTY = f"(?i)^{_SPACES}empty{_SPACES}$"
#: The errors of texts, by the first pattern that matches.
_PROBLEMS = (
    (f"(?i)^{_SPACES}empty", 'Junk after "empty" key word.'),
    (f"^{_SPACES}($|[^\\[( \\t\\n\\r\\f\\x0b])", "Missing left parenthesis or bracket."),
    (f"(?s)^{_SPACES}[\\[(]{_BOUND}[\\])]", "Missing comma after lower bound."),
    (f"(?s)^{_SPACES}[\\[(]{_BOUND},{_BOUND},", "Too many commas."),
    (f"(?s)^{_SPACES}[\\[(]{_BOUND},{_BOUND}[\\])]", "Junk after right parenthesis or bracket."),
)


def _bound_text(text: Ast, group: int, engine: Engine) -> Ast:
    """The text of a bound without quotes and escapes; NULL if it is missing."""
    raw = s.regexp_group(text, _WHOLE, group)
    piece = s.variable("rb0")
    inside = s.call("SUBSTRING", piece, s.num(2), s.sub(s.call("LENGTH", piece), s.num(2)))
    unescaped = s.regexp_replace(inside, '(?s)\\\\(.)|"(")', "\\1\\2", engine)
    plain = s.regexp_replace(piece, "(?s)\\\\(.)", "\\1", engine)
    quoted = s.eq(s.call("LEFT", piece, s.num(1)), s.text('"'))
    pieces = s.call(
        "REGEXP_EXTRACT_ALL", raw, s.text('(?s)"(?:[^"\\\\]|\\\\.|"")*"|\\\\.|[^"\\\\]+')
    )
    shown = s.call(
        "LIST_TRANSFORM",
        pieces,
        s.lambda_(("rb0",), s.case((quoted, unescaped), otherwise=plain)),
    )
    joined = s.coalesce(s.call("ARRAY_TO_STRING", shown, s.text("")), s.text(""))
    special = s.matches(raw, '["\\\\]', engine)
    return s.case((s.neq(raw, s.text("")), s.case((special, joined), otherwise=raw)))


def _taken_apart(text: Ast, engine: Engine) -> Ast:
    return s.struct(
        low=_bound_text(text, 2, engine),
        high=_bound_text(text, 3, engine),
        low_in=s.eq(s.regexp_group(text, _WHOLE, 1), s.text("[")),
        high_in=s.eq(s.regexp_group(text, _WHOLE, 4), s.text("]")),
    )


def _over_texts(
    text: Ast, engine: Engine, build: Callable[[Ast, Ast, Ast, Ast], Ast], name: str
) -> Ast:
    """The result of ``build`` for the texts of both bounds and whether they are inclusive."""
    if engine is Engine.SPARK:
        raise duckdb_only("reading a range from a text")
    parts = s.variable(name)
    body = build(*(s.field(parts, part) for part in ("low", "high", "low_in", "high_in")))
    return s.let(_taken_apart(text, engine), name, body, engine)


def _over_values(
    text: Ast, typ: SqlType, engine: Engine, build: Callable[[Given], Ast], name: str
) -> Ast:
    """The result of ``build`` for the bounds in a text."""

    def read(low: Ast, high: Ast, low_in: Ast, high_in: Ast) -> Ast:
        values = s.struct(
            low=element_cast(low, TEXT, element(typ), engine),
            high=element_cast(high, TEXT, element(typ), engine),
            low_in=low_in,
            high_in=high_in,
        )
        parts = s.variable(f"{name}b")
        low, high, low_in, high_in = (
            s.field(parts, part) for part in ("low", "high", "low_in", "high_in")
        )
        given = Given(low, high, low_in, high_in, typ, engine)
        return s.let(values, f"{name}b", build(given), engine)

    return _over_texts(text, engine, read, f"{name}a")


def _read(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    text = args[0].ast
    made = _over_values(text, typ, engine, lambda given: given.range(), "rx")
    return s.case(
        (s.matches(text, _EMPTY, engine), empty(typ, engine)),
        (s.matches(text, _WHOLE, engine), made),
    )


def _broken(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    if engine is Engine.SPARK:
        raise duckdb_only("reading a range from a text")
    text = args[0].ast
    return s.not_(s.or_(s.matches(text, _EMPTY, engine), s.matches(text, _WHOLE, engine)))


def _syntax(detail: Ast, text: Ast) -> Ast:
    lead = s.text("invalid input syntax for type range: ")
    return s.concat(lead, detail, s.text(': "'), text, s.text('"'))


def _broken_message(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    text = args[0].ast
    problems = [(s.matches(text, pattern, engine), s.text(told)) for pattern, told in _PROBLEMS]
    return _syntax(s.case(*problems, otherwise=s.text("Unexpected end of input.")), text)


def _bound_error(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    """The error of parsing a bound; NULL if there is none."""

    def told(low: Ast, high: Ast, _low_in: Ast, _high_in: Ast) -> Ast:
        found = [
            s.case((s.is_not_null(bound), failure))
            for bound in (low, high)
            if (failure := element_error(bound, TEXT, element(typ), engine)) is not None
        ]
        return s.coalesce(*found)

    return _over_texts(args[0].ast, engine, told, "ry")


def _bound_fails(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    return s.is_not_null(_bound_error(engine, args, typ))


def _bound_message(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    return _syntax(_bound_error(engine, args, typ), args[0].ast)


def _text_misordered(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    return _over_values(args[0].ast, typ, engine, lambda given: given.misordered, "rm")


def _text_overflows(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    if element(typ).kind not in DISCRETE:
        return s.boolean(False)
    return _over_values(args[0].ast, typ, engine, lambda given: given.overflows, "ro")


def _casts() -> list[ScalarFunc]:
    return [
        ScalarFunc("range_to_text", "cast", (ANY,), TEXT, text_of),
        ScalarFunc(
            key="text_to_range",
            name="cast",
            args=(TEXT,),
            result=RANGE,
            value=_read,
            errors=(
                ErrorRule(_broken, _broken_message),
                ErrorRule(_bound_fails, _bound_message),
                ErrorRule(_text_misordered, MISORDERED),
                ErrorRule(_text_overflows, _end_message),
            ),
        ),
    ]


FUNCTIONS: tuple[ScalarFunc, ...] = (
    *_operators(),
    *_elementwise(),
    *_parts(),
    *_constructors(),
    *declared(*_casts()),
)
