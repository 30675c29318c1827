"""The representation of ranges in SQL: parts, construction from bounds, text.

Promise: a range is a struct with the fields of `mzsql.repr.types.range_fields`, so the engines' native comparison,
grouping and joins of structs are PostgreSQL's for ranges. Ranges built here are canonical: equal ranges are equal
structs.
"""

from __future__ import annotations

from dataclasses import dataclass

from mzsql.expr.functions import epoch
from mzsql.expr.functions import sql as s
from mzsql.expr.functions.comparison import FUNCTIONS as COMPARISONS
from mzsql.expr.functions.declare import Ast
from mzsql.expr.functions.number.numeric import rescale
from mzsql.expr.functions.table import Engine, Sql
from mzsql.repr.ranges import DISCRETE
from mzsql.repr.types import BOOLEAN, TEXT, SqlType

_COMPARE = {func.key: func for func in COMPARISONS}


def element(typ: SqlType) -> SqlType:
    """The type of a range's bounds."""
    return typ.element or TEXT


def compare(op: str, left: Ast, right: Sql, typ: SqlType, engine: Engine) -> Ast:
    """The comparison of a bound of type ``typ`` with a value.

    Args:
        op: the operator's name.
        left: the bound.
        right: the value.
        typ: the bound's type.
        engine: the engine.
    """
    func = _COMPARE[f"{op}_{typ.kind}"]
    return func.value(engine, [Sql(left, typ), right], BOOLEAN)


@dataclass(frozen=True)
class Parts:
    """The parts of a range."""

    ast: Ast
    typ: SqlType
    engine: Engine

    def part(self, name: str) -> Ast:
        """A field of the struct."""
        return s.field(self.ast, name)

    @property
    def empty(self) -> Ast:
        """Whether the range is empty."""
        return s.eq(self.part("lower_rank"), s.num(0))

    @property
    def lower_end(self) -> Ast:
        """The lower end as a struct that compares like PostgreSQL's range ends."""
        return self._end("lower_rank", "lower", "lower_exclusive")

    @property
    def upper_end(self) -> Ast:
        """The upper end as a struct that compares like PostgreSQL's range ends."""
        return self._end("upper_rank", "upper", "upper_inclusive")

    def _end(self, *names: str) -> Ast:
        return s.struct(**{f"e{i}": self.part(name) for i, name in enumerate(names)})

    def has(self, value: Sql) -> Ast:
        """Whether the range contains a value."""
        typ, engine = element(self.typ), self.engine
        low, high = self.part("lower"), self.part("upper")
        at_low = s.and_(
            s.not_(self.part("lower_exclusive")), compare("eq", low, value, typ, engine)
        )
        at_high = s.and_(self.part("upper_inclusive"), compare("eq", high, value, typ, engine))
        above = s.or_(s.is_null(low), compare("lt", low, value, typ, engine), at_low)
        below = s.or_(s.is_null(high), compare("gt", high, value, typ, engine), at_high)
        return s.and_(s.not_(self.empty), above, below)

    def reaches(self, other: Parts) -> Ast:
        """Whether the lower end is not above the other's upper end; both are non-empty."""
        low, high = self.part("lower"), other.part("upper")
        both = s.and_(s.not_(self.part("lower_exclusive")), other.part("upper_inclusive"))
        return s.or_(
            s.is_null(low), s.is_null(high), s.lt(low, high), s.and_(s.eq(low, high), both)
        )

    def meets(self, other: Parts) -> Ast:
        """Whether the range ends exactly where the other begins, with the bound in one of them."""
        high, low = self.part("upper"), other.part("lower")
        either = s.eq(self.part("upper_inclusive"), other.part("lower_exclusive"))
        known = s.and_(s.is_not_null(high), s.is_not_null(low))
        return s.and_(known, s.eq(high, low), either)


def overlap(left: Parts, right: Parts) -> Ast:
    """Whether two ranges overlap."""
    return s.and_(present(left, right), left.reaches(right), right.reaches(left))


def present(left: Parts, right: Parts) -> Ast:
    """Whether both ranges are non-empty."""
    return s.and_(s.not_(left.empty), s.not_(right.empty))


def adjacent(left: Parts, right: Parts) -> Ast:
    """Whether two ranges are adjacent."""
    return s.and_(present(left, right), s.or_(left.meets(right), right.meets(left)))


def of_ends(lower: Parts, upper: Parts) -> Ast:
    """The non-empty range from one's lower end to the other's upper end."""
    names = ("lower_rank", "lower", "lower_exclusive")
    fields = {name: lower.part(name) for name in names}
    names = ("upper_rank", "upper", "upper_inclusive")
    return s.struct(**fields, **{name: upper.part(name) for name in names})


def empty(typ: SqlType, engine: Engine) -> Ast:
    """The empty range."""
    null = s.cast(s.null(), element(typ), engine)
    made = s.struct(
        lower_rank=s.num(0),
        lower=null,
        lower_exclusive=s.boolean(False),
        upper_rank=s.num(0),
        upper=null,
        upper_inclusive=s.boolean(False),
    )
    return s.cast(made, typ, engine)


# --- of bounds -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Given:
    """Bounds as given: values or NULL, and whether each is inclusive."""

    lower: Ast
    upper: Ast
    lower_in: Ast
    upper_in: Ast
    typ: SqlType
    engine: Engine

    @property
    def misordered(self) -> Ast:
        """Whether the lower bound is greater than the upper one."""
        return s.gt(self.lower, self.upper)

    @property
    def overflows(self) -> Ast:
        """Whether a bound must be moved to the next value, but there is none."""
        if element(self.typ).kind not in DISCRETE:
            return s.boolean(False)
        moved = s.and_(s.is_not_null(self.lower), s.not_(self.lower_in), s.is_null(self._low()[0]))
        other = s.and_(s.is_not_null(self.upper), self.upper_in, s.is_null(self._high()[0]))
        return s.or_(moved, other)

    def _low(self) -> tuple[Ast, Ast]:
        if element(self.typ).kind not in DISCRETE:
            return self.lower, self.lower_in
        following = following_value(self.lower, element(self.typ), self.engine)
        return s.case((self.lower_in, self.lower), otherwise=following), s.boolean(True)

    def _high(self) -> tuple[Ast, Ast]:
        if element(self.typ).kind not in DISCRETE:
            return self.upper, self.upper_in
        following = following_value(self.upper, element(self.typ), self.engine)
        return s.case((self.upper_in, following), otherwise=self.upper), s.boolean(False)

    def range(self) -> Ast:
        """The range with these bounds."""
        (low, low_in), (high, high_in) = self._low(), self._high()
        moved = s.struct(low=low, low_in=low_in, high=high, high_in=high_in)
        return s.let(moved, "rv9", self._made(s.variable("rv9")), self.engine)

    def _made(self, ends: Ast) -> Ast:
        low, high = s.field(ends, "low"), s.field(ends, "high")
        low_in, high_in = s.field(ends, "low_in"), s.field(ends, "high_in")
        single = s.and_(s.eq(low, high), s.not_(s.and_(low_in, high_in)))
        nothing = s.coalesce(s.or_(s.gt(low, high), single), s.boolean(False))
        no_low, no_high = s.is_null(low), s.is_null(high)
        made = s.struct(
            lower_rank=s.case((no_low, s.num(1)), otherwise=s.num(2)),
            lower=low,
            lower_exclusive=s.and_(s.not_(no_low), s.not_(low_in)),
            upper_rank=s.case((no_high, s.num(2)), otherwise=s.num(1)),
            upper=high,
            upper_inclusive=s.and_(s.not_(no_high), high_in),
        )
        built = s.cast(made, self.typ, self.engine)
        return s.case((nothing, empty(self.typ, self.engine)), otherwise=built)


def following_value(ast: Ast, typ: SqlType, engine: Engine) -> Ast:
    """The next value of a discrete type; NULL beyond the last."""
    if typ.kind == "date":
        return epoch.date_of_days(s.add(epoch.days(ast, engine), s.num(1)), engine)
    return s.try_cast(s.add(s.wide(ast), s.num(1)), typ, engine)


def as_bound(arg: Sql, typ: SqlType, engine: Engine) -> Ast:
    """A constructor's argument as a bound; NULL if it does not fit."""
    bound = element(typ)
    if bound.kind == "numeric":
        return rescale(arg.ast, bound.effective_scale)
    return s.cast(arg.ast, bound, engine)
