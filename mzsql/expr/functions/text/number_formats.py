"""`to_char` for numbers and `to_number`, by PostgreSQL's patterns.

Promise: PostgreSQL's patterns for numbers in locale C: 9, 0, point and comma (D, G), FM, S, MI, PL, SG, PR, L, RN, TH,
V, EEEE, text in double quotes; a number with more digits than the pattern is shown as ``#``. The format must be
constant, since it is parsed when the expression is spelled.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.declare import FLOATS, INTEGERS, Ast, constant_text, of
from mzsql.expr.functions.table import Engine, ErrorRule, ScalarFunc, Sql
from mzsql.repr.errors import SqlSyntaxError, Unsupported
from mzsql.repr.types import NUMERIC, TEXT, SqlType

_WORDS = "EEEE|FM|RN|PL|MI|SG|PR|TH|[90.,DGSLV]"
_TOKEN = re.compile(rf'"((?:[^"\\]|\\.)*)"|({_WORDS})|(.)', re.DOTALL | re.IGNORECASE)
_ROMAN = (
    (1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"), (50, "L"), (40, "XL"), (10, "X"), (9, "IX"), (5, "V"),
    (4, "IV"), (1, "I"),
)  # fmt: skip
_ROMAN_WIDTH, _LARGEST_ROMAN = 15, 3999
#: The maximum length of a format, whose parts become an expression.
_LONGEST = 100
_MOST_DIGITS = 38


@dataclass(frozen=True)
class _Format:
    """A parsed format.

    Attributes:
        nodes: its parts in order: the kind, and its text or, for a digit, its position from 1.
        whole: the number of digits before the decimal point.
        fraction: the number of digits after the decimal point.
        zero: the first position before the decimal point that is zero-filled; None if there is none.
        kept: the number of decimals shown even if zero.
        words: the words in it.
    """

    nodes: tuple[tuple[str, str], ...]
    whole: int
    fraction: int
    zero: int | None
    kept: int
    words: frozenset[str]

    @property
    def bare(self) -> bool:
        """Whether padding is off (FM)."""
        return "FM" in self.words


def _parsed(text: str) -> _Format:
    if len(text) > _LONGEST:
        raise Unsupported(
            f"a format of a number of more than {_LONGEST} characters is not supported"
        )
    nodes: list[tuple[str, str]] = []
    words: set[str] = set()
    whole = fraction = kept = 0
    zero: int | None = None
    for quoted, word, other in _TOKEN.findall(text):
        name = word.upper()
        if not word:
            nodes.append(("text", other or re.sub(r"\\(.)", r"\1", quoted)))
            continue
        words.add(name)
        if name in "90":
            if words & {".", "D"}:
                fraction += 1
                kept = fraction if name == "0" else kept
                nodes.append(("fraction", str(fraction)))
            else:
                whole += 1
                zero = whole if name == "0" and zero is None else zero
                nodes.append(("whole", str(whole)))
        elif name in (".", "D"):
            nodes.append(("point", ""))
        elif name in (",", "G"):
            nodes.append(("comma", str(whole)))
        elif name == "TH":
            nodes.append(("ordinal", word))
        elif name not in ("FM", "V"):
            nodes.append((name, "small" if word.islower() else ""))
    if "EEEE" in words and words - {"EEEE", "9", "0", ".", "D"}:
        raise SqlSyntaxError('"EEEE" is incompatible with other formats')
    if "V" in words:
        behind = len(re.findall("[90]", re.split("[vV]", text, maxsplit=1)[1]))
        nodes.append(("shift", str(behind)))
    if whole > _MOST_DIGITS or fraction > _MOST_DIGITS - 1:
        raise Unsupported(f"a format of more than {_MOST_DIGITS} digits is not supported")
    return _Format(tuple(nodes), whole, fraction, zero, kept, frozenset(words))


# --- numbers as texts ----------------------------------------------------------------------------

_NUMBER, _PADDED, _FRACTION, _KEPT, _BELOW = "tn0", "tn1", "tn2", "tn3", "tn4"


def _format_of(arg: Sql) -> str | None:
    return constant_text(arg, "a format of a number")


def _to_char(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    if engine is not Engine.DUCKDB:
        raise Unsupported("to_char of numbers is computed in process")
    text = _format_of(args[1])
    if text is None:
        return s.string(s.null())
    form = _parsed(text)
    if "RN" in form.words:
        shown = _roman(args[0], form)
    elif "EEEE" in form.words:
        shown = _scientific(args[0], form)
    else:
        shown = _plain(args[0], form)
    return s.case((s.is_not_null(args[0].ast), shown))


def _digits(arg: Sql, scale: int, shift: int = 0) -> Ast:
    """The absolute value, rounded to ``scale`` decimals; NULL if it has too many digits."""
    size = s.call("ABS", s.hugeint(arg.ast) if arg.typ.kind in INTEGERS else arg.ast)
    if arg.typ.kind not in FLOATS:
        size = s.try_cast_to(size, s.decimal_type(38, min(arg.typ.effective_scale, 37)))
    if arg.typ.kind in FLOATS and not shift:
        # As in C: ties round to even.
        return s.call("FORMAT", s.text(f"{{:.{scale}f}}"), s.double(size))
    if shift:
        size = s.mul(size, s.num(10**shift))
    rounded = s.try_cast_to(s.call("ROUND", size, s.num(scale)), s.decimal_type(38, scale))
    return s.string(rounded)


def _plain(arg: Sql, form: _Format) -> Ast:
    shift = next((int(many) for kind, many in form.nodes if kind == "shift"), 0)
    number = s.variable(_NUMBER)
    whole = s.call("SPLIT_PART", number, s.text("."), s.num(1))
    over = s.or_(s.is_null(number), s.gt(s.call("LENGTH", whole), s.num(form.whole)))
    fraction = s.case(
        (over, s.text("#" * form.fraction)),
        otherwise=s.call("SPLIT_PART", number, s.text("."), s.num(2)),
    )
    kept = s.at_least(
        s.call("LENGTH", s.call("RTRIM", s.variable(_FRACTION), s.text("0"))), s.num(form.kept)
    )
    below = s.lt(arg.ast, s.num(0))
    if arg.typ.kind not in FLOATS:
        # The sign of the rounded number; a number too long for the format keeps its own.
        nonzero = s.matches(number, "[1-9]", Engine.DUCKDB)
        below = s.and_(below, s.coalesce(nonzero, s.boolean(True)))
    body = s.concat(s.text(""), *_pieces(form))
    body = s.let(_filled(whole, over, form), _PADDED, body, Engine.DUCKDB)
    body = s.let(kept, _KEPT, body, Engine.DUCKDB)
    body = s.let(fraction, _FRACTION, body, Engine.DUCKDB)
    body = s.let(below, _BELOW, body, Engine.DUCKDB)
    return s.let(_digits(arg, form.fraction, shift), _NUMBER, body, Engine.DUCKDB)


def _filled(whole: Ast, over: Ast, form: _Format) -> Ast:
    """The digits before the decimal point, padded with zeros and blanks."""
    nothing = s.eq(whole, s.text("0"))
    if form.zero is not None or form.fraction == 0:
        nothing = s.boolean(False)
    elif form.bare:
        # If no decimal remains, the digit before the decimal point is shown.
        nothing = s.and_(nothing, s.gt(s.variable(_KEPT), s.num(0)))
    digits = s.case((nothing, s.text("")), otherwise=whole)
    zeros = 0 if form.zero is None else form.whole - form.zero + 1
    size = s.call("GREATEST", s.call("LENGTH", digits), s.num(zeros))
    digits = s.call("LPAD", digits, s.integer(size), s.text("0"))
    return s.case(
        (over, s.text("#" * form.whole)),
        otherwise=s.call("LPAD", digits, s.num(form.whole), s.text(" ")),
    )


def _pieces(form: _Format) -> list[Ast]:
    below, padded = s.variable(_BELOW), s.variable(_PADDED)
    blank = s.text("" if form.bare else " ")
    sign, closing = _signs(form)
    numeric = [
        i for i, (kind, _) in enumerate(form.nodes) if kind in ("whole", "fraction", "point")
    ]
    first_digit = numeric[0] if numeric else len(form.nodes)
    found: list[Ast] = []
    for i, (kind, said) in enumerate(form.nodes):
        if kind == "whole":
            place = int(said)
            digit = s.call("SUBSTR", padded, s.num(place), s.num(1))
            there = s.neq(digit, s.text(" "))
            begins = there
            if place > 1:
                before = s.call("SUBSTR", padded, s.num(place - 1), s.num(1))
                begins = s.and_(there, s.eq(before, s.text(" ")))
            found.append(s.case((begins, sign), otherwise=s.text("")))
            found.append(s.case((there, digit), otherwise=blank))
        elif kind == "point":
            hollow = s.eq(s.call("TRIM", padded), s.text(""))
            found += [s.case((hollow, sign), otherwise=s.text("")), s.text(".")]
        elif kind == "fraction":
            digit = s.call("SUBSTR", s.variable(_FRACTION), s.num(int(said)), s.num(1))
            if form.bare:
                shown = s.lte(s.num(int(said)), s.variable(_KEPT))
                digit = s.case((shown, digit), otherwise=s.text(""))
            found.append(digit)
        elif kind == "comma":
            place = int(said)
            before = s.call("SUBSTR", padded, s.num(max(place, 1)), s.num(1))
            shown = s.neq(before, s.text(" ")) if place else s.boolean(False)
            found.append(s.case((shown, s.text(",")), otherwise=blank))
        elif kind == "text":
            found.append(s.text(said))
        elif kind == "L":
            found.append(s.text(" "))
        elif kind == "ordinal":
            found.append(_ordinal(said, form))
        elif kind in ("MI", "PL", "SG"):
            found.append(_sign_of(kind, below, blank))
        if numeric and i == numeric[-1]:
            found.append(closing)
            if _signed_behind(form, first_digit):
                found.append(s.case((below, s.text("-")), otherwise=s.text("+")))
    return found


def _sign_of(kind: str, below: Ast, blank: Ast) -> Ast:
    minus = blank if kind == "PL" else s.text("-")
    plus = blank if kind == "MI" else s.text("+")
    return s.case((below, minus), otherwise=plus)


def _signed_behind(form: _Format, first_digit: int) -> bool:
    """Whether S follows the digits."""
    places = [i for i, (kind, _) in enumerate(form.nodes) if kind == "S"]
    return bool(places) and places[0] > first_digit


def _signs(form: _Format) -> tuple[Ast, Ast]:
    """The signs right before the first digit and right after the last."""
    below, nothing = s.variable(_BELOW), s.text("")
    blank = nothing if form.bare else s.text(" ")
    if "S" in form.words:
        kinds = [kind for kind, _ in form.nodes]
        first = next((i for i, k in enumerate(kinds) if k in ("whole", "fraction", "point")), 0)
        if _signed_behind(form, first):
            return nothing, nothing
        return s.case((below, s.text("-")), otherwise=s.text("+")), nothing
    if form.words & {"MI", "SG"}:
        return nothing, nothing
    if "PR" in form.words:
        return (
            s.case((below, s.text("<")), otherwise=blank),
            s.case((below, s.text(">")), otherwise=blank),
        )
    return s.case((below, s.text("-")), otherwise=blank), nothing


def _ordinal(word: str, form: _Format) -> Ast:
    """The suffix ``st``, ``nd``, ``rd`` or ``th`` for a non-negative integer."""
    if form.words & {".", "D"}:
        return s.text("")
    digits = s.call("TRIM", s.variable(_PADDED))
    last, two = s.call("RIGHT", digits, s.num(1)), s.call("RIGHT", digits, s.num(2))

    def cased(ending: str) -> Ast:
        return s.text(ending if word.islower() else ending.upper())

    none = s.or_(s.variable(_BELOW), s.call("STARTS_WITH", digits, s.text("#")))
    teen = s.and_(s.eq(s.call("LENGTH", two), s.num(2)), s.call("STARTS_WITH", two, s.text("1")))
    endings = [
        (s.eq(last, s.text(d)), cased(e)) for d, e in (("1", "st"), ("2", "nd"), ("3", "rd"))
    ]
    return s.case((none, s.text("")), (teen, cased("th")), *endings, otherwise=cased("th"))


def _roman(arg: Sql, form: _Format) -> Ast:
    number = s.try_cast_to(s.call("ROUND", arg.ast), s.sql_type(of("integer"), Engine.DUCKDB))
    rest = s.variable(_NUMBER)
    parts: list[Ast] = []
    small = ("RN", "small") in form.nodes
    for value, letters in _ROMAN:
        written = letters.lower() if small else letters
        above = next((v for v, _ in reversed(_ROMAN) if v > value), None)
        left = rest if above is None else _left_of(rest, value)
        parts.append(s.call("REPEAT", s.text(written), s.big(s.int_div(left, s.num(value)))))
    made = s.concat(*parts)
    shown = made if form.bare else s.call("LPAD", made, s.num(_ROMAN_WIDTH), s.text(" "))
    inside = s.coalesce(s.between(rest, s.num(1), s.num(_LARGEST_ROMAN)), s.boolean(False))
    body = s.case((inside, shown), otherwise=s.text("#" * _ROMAN_WIDTH))
    return s.let(number, _NUMBER, body, Engine.DUCKDB)


def _left_of(number: Ast, value: int) -> Ast:
    """The rest of a number after removing all larger Roman numerals."""
    left = number
    for larger, _ in _ROMAN:
        if larger <= value:
            break
        left = s.mod(left, s.num(larger))
    return left


def _scientific(arg: Sql, form: _Format) -> Ast:
    shown = s.call("FORMAT", s.text(f"{{:.{form.fraction}e}}"), s.double(arg.ast))
    blank = s.text("" if form.bare else " ")
    return s.case((s.lt(arg.ast, s.num(0)), shown), otherwise=s.concat(blank, shown))


def _not_finite(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    del engine
    return s.not_(s.call("ISFINITE", args[0].ast))


_FINITE = ErrorRule(
    _not_finite,
    "to_char of a number that is not finite is not supported",
    lambda args, _typ: args[0].kind in FLOATS,
)


# --- texts as numbers ----------------------------------------------------------------------------


def _to_number(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    if engine is not Engine.DUCKDB:
        raise Unsupported("to_number is computed in process")
    text = _format_of(args[1])
    if text is None:
        return s.cast(s.null(), typ, engine)
    form = _parsed(text)
    bare = s.regexp_replace(args[0].ast, "[^0-9.]", "", engine)
    whole = s.call("LEFT", s.call("SPLIT_PART", bare, s.text("."), s.num(1)), s.num(form.whole))
    behind = s.call("LEFT", s.call("SPLIT_PART", bare, s.text("."), s.num(2)), s.num(form.fraction))
    below = s.matches(args[0].ast, "-|<.*>", engine)
    sign = s.case((below, s.text("-")), otherwise=s.text(""))
    return s.try_cast(
        s.concat(sign, s.text("0"), whole, s.text("."), behind, s.text("0")), typ, engine
    )


def _no_number(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    return s.not_(s.matches(args[0].ast, "[0-9]", engine))


FUNCTIONS: tuple[ScalarFunc, ...] = (
    *(
        ScalarFunc(
            key=f"to_char_{kind}",
            name="to_char",
            args=(of(kind), TEXT),
            result=TEXT,
            value=_to_char,
            errors=(_FINITE,),
        )
        for kind in ("integer", "bigint", "real", "double", "numeric")
    ),
    ScalarFunc(
        key="to_number",
        name="to_number",
        args=(TEXT, TEXT),
        result=NUMERIC,
        value=_to_number,
        introduces_nulls=False,
        errors=(
            ErrorRule(
                _no_number,
                lambda _engine, args, _typ: s.concat(
                    s.text('invalid input syntax for type numeric: "'), args[0].ast, s.text('"')
                ),
            ),
        ),
    ),
)
