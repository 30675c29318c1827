"""What is left of an expression of DuckDB's where it is known what its columns may be.

Promise: `Simplifier.of` returns an expression that has the same value and the same type over all rows that its columns' facts allow, and
that raises at most where the given one does. What is proven not to fail loses its guards (``TRY``, ``TRY_CAST``); what is proven NULL,
TRUE, FALSE or one number is written as that; whatever it does not know it leaves as it is. Where it is not certain which type DuckDB
gives an operation, the type counts as unknown, and casts around it stay.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from fractions import Fraction

from sqlglot import expressions as exp

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.number.numeric import division_of, small_quotient
from mzsql.expr.functions.table import Engine
from mzsql.render.facts import (
    BIGINT,
    BOOLEAN,
    DATE,
    FIRST_DAY,
    HUGEINT,
    INTEGERS,
    LAST_DAY,
    NULL,
    NUMBER,
    STRING,
    Fact,
    bounded,
    decimal,
    decimal_kind,
    decimal_of,
    fits,
    is_number,
    negated,
    null,
    number,
    one_of,
    product_of,
    sum_of,
    total_of,
    truth,
)
from mzsql.render.times import STAND_INS

Ast = exp.Expression
#: An expression, and what may come out of it.
Known = tuple[Ast, Fact]

#: What nests deeper than this is left as it is.
DEPTH = 150

_TRUE = truth(may_hold=True, may_not=False, nulls=False, fails=False)
_FALSE = truth(may_hold=False, may_not=True, nulls=False, fails=False)
_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)
#: Times that stand for others are no numbers: nothing may be computed of them.
_TIMES = frozenset(str(time) for time in STAND_INS)
_ZERO = exp.Literal.number(0)
_EPOCH = datetime.date(1970, 1, 1)


def kind_of(typ: exp.DataType) -> str:
    """A type's name as facts have it."""
    return typ.sql(Engine.DUCKDB.value)


class Simplifier:
    """Simplifies expressions over one query's columns.

    Args:
        columns: facts by (alias of the relation or None, column's name).
        rows: how many rows an aggregate may see at most.
        grouped: whether aggregates are of groups, which have a row each.
        same: columns that are always the same as others of their relation, which are read instead.
    """

    def __init__(
        self,
        columns: Mapping[tuple[str | None, str], Fact],
        *,
        rows: int,
        grouped: bool,
        same: Mapping[tuple[str | None, str], str] | None = None,
    ) -> None:
        self._columns = dict(columns)
        self._copies = same or {}
        self._rows = rows
        self._grouped = grouped
        self._depth = 0
        #: conditions that hold
        self._held: frozenset[Ast] = frozenset()
        #: expressions that are larger than 0
        self._positive: frozenset[Ast] = frozenset()
        #: whether only the fact counts
        self._trying = False

    def of(self, ast: Ast) -> Known:
        """The expression's simplest form, and its fact. Parts of `ast` may be in it."""
        rule = _RULES.get(type(ast))
        if rule is None or self._depth >= DEPTH:
            return ast, Fact()
        self._depth += 1
        try:
            made, fact = rule(self, ast)
        finally:
            self._depth -= 1
        fact = bounded(fact)
        if self._positive and fact.kind in INTEGERS and _bare(made) in self._positive:
            low = Fraction(1) if fact.low is None else max(fact.low, Fraction(1))
            fact = replace(fact, nulls=False, low=low)
        return _written(made, fact), fact

    def condition(self, ast: Ast) -> Known:
        """As `of`, where it matters only whether it is TRUE."""
        node = _bare(ast)
        if self._depth >= DEPTH or not isinstance(node, exp.And | exp.Or):
            made, fact = self.of(ast)
            if self._held and not fact.always and _bare(made) in self._held:
                return s.boolean(True), _TRUE
            return made, fact
        self._depth += 1
        try:
            first = self.condition(node.this)
            decided = self._decided(node, first[0]) if isinstance(node, exp.And) else None
            sides = [first, decided or self.condition(node.expression)]
        finally:
            self._depth -= 1
        for i, (_, fact) in enumerate(sides):
            if fact.never and not fact.fails:
                return sides[1 - i] if isinstance(node, exp.Or) else (s.boolean(False), _FALSE)
        joined, fact = self._joined(node, sides, neutral=isinstance(node, exp.And))
        return _closed(_written(joined, fact)), fact

    def _decided(self, node: Ast, left: Ast) -> Known | None:
        """The right side of an AND where the left one decides it. It is looked at apart: its rows are not only those of the left side,
        so it must not lose a guard for what the left side says.
        """
        if self._trying:
            with self._given(left):
                return self.condition(node.expression)
        if isinstance(_bare(node.expression), exp.And | exp.Or):
            return None
        self._trying = True
        try:
            with self._given(left):
                _, fact = self.condition(node.expression.copy())
        finally:
            self._trying = False
        if fact.fails or not (fact.always or fact.never):
            return None
        return s.boolean(fact.always), _TRUE if fact.always else _FALSE

    @contextmanager
    def _given(self, condition: Ast | None) -> Iterator[None]:
        """Within the block, take for granted that a condition holds."""
        columns, held, positive = self._columns, self._held, self._positive
        if condition is not None:
            self._columns = dict(columns)
            self.refine(condition)
        try:
            yield
        finally:
            self._columns, self._held, self._positive = columns, held, positive

    def refine(self, condition: Ast) -> None:
        """Take for granted that a condition holds."""
        found = _conjuncts(condition)
        self._held = self._held.union(found)
        for one in found:
            wanted_null = True
            node = one
            if isinstance(node, exp.Not):
                wanted_null, node = False, _bare(node.this)
            if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
                inner = _bare(node.this)
                columns = [inner] if wanted_null else _needed(inner)
                for column in columns:
                    if isinstance(column, exp.Column):
                        self._learn(column, wanted_null)
            if isinstance(node, exp.GT) and _bare(node.expression) == _ZERO:
                self._positive = self._positive.union((_bare(node.this),))

    def _exclude(self, condition: Ast) -> None:
        """Take for granted that a condition does not hold: of what is not equal to 0 it is known that it is not 0."""
        node = _bare(condition)
        if not isinstance(node, exp.EQ):
            return
        column, zero = _bare(node.this), self.of(node.expression.copy())[1]
        if isinstance(column, exp.Column) and zero.constant == 0:
            key = (column.table or None, column.name)
            fact = self._columns.get(key)
            if fact is not None and is_number(fact.kind):
                self._columns = {**self._columns, key: replace(fact, other=True)}

    def _learn(self, column: exp.Column, is_null: bool) -> None:
        key = (column.table or None, column.name)
        fact = self._columns.get(key)
        if fact is not None:
            self._columns[key] = (
                null(fact.kind) if is_null else replace(fact, nulls=False, fails=False)
            )

    # The rules, one for each class of nodes.

    def _column(self, ast: Ast) -> Known:
        assert isinstance(ast, exp.Column)
        if not ast.this.args.get("quoted"):
            # A lambda's parameter.
            return ast, Fact()
        key = (ast.table or None, ast.name)
        other = self._copies.get(key)
        if other is not None:
            ast.set("this", exp.to_identifier(other, quoted=True))
            key = (key[0], other)
        return ast, self._columns.get(key, Fact(fails=False))

    def _literal(self, ast: Ast) -> Known:
        if ast.args.get("is_string"):
            return ast, Fact(STRING, nulls=False, fails=False, texts=frozenset((ast.this,)))
        if ast.this in _TIMES:
            return ast, Fact(NUMBER, nulls=False, fails=False)
        try:
            value = Fraction(ast.this)
        except ValueError:
            return ast, Fact(nulls=False, fails=False)
        return ast, number(value, NUMBER if value.denominator == 1 else None)

    def _null(self, ast: Ast) -> Known:
        return ast, null()

    def _boolean(self, ast: Ast) -> Known:
        held = bool(ast.this)
        return ast, truth(may_hold=held, may_not=not held, nulls=False, fails=False)

    def _paren(self, ast: Ast) -> Known:
        inner, fact = self.of(ast.this)
        if isinstance(inner, exp.Binary | exp.Unary | exp.Between) and not isinstance(
            inner, exp.Paren
        ):
            return _with(ast, this=inner), fact
        return inner, fact

    def _cast(self, ast: Ast) -> Known:
        kind = kind_of(ast.args["to"])
        inner, fact = self.of(ast.this)
        if not fact.values and not fact.fails:
            return ast, null(kind)
        if fact.kind == kind:
            return inner, fact
        if isinstance(inner, exp.Literal):
            known = _read_literal(inner, kind)
            if known is not None:
                return exp.Cast(this=inner, to=ast.args["to"]), known
        safe = isinstance(ast, exp.TryCast)
        if _casts(fact, kind):
            made = Fact(
                kind,
                values=fact.values,
                nulls=fact.nulls,
                low=_cast_bound(fact.low, fact, kind),
                high=_cast_bound(fact.high, fact, kind),
                fails=fact.fails,
                texts=fact.texts if kind == "TEXT" else None,
                other=fact.nonzero and _is_finer(kind, fact),
            )
            return exp.Cast(this=inner, to=ast.args["to"]), made
        out = Fact(kind, nulls=fact.nulls or safe, fails=fact.fails if safe else True)
        return _with(ast, this=inner), out

    def _call(self, ast: Ast) -> Known:
        rule = _CALLS.get(str(ast.this).upper())
        if rule is not None:
            return rule(self, ast)
        made = [self.of(arg)[0] for arg in ast.expressions]
        return _with(ast, expressions=made), Fact()

    def _try(self, ast: Ast) -> Known:
        operands = division_of(ast)
        if operands is not None:
            return self._quotient(ast, *operands)
        inner, fact = self.of(ast.expressions[0])
        if not fact.fails:
            return inner, fact
        return _with(ast, expressions=[inner]), replace(fact, nulls=True, fails=False)

    def _quotient(self, ast: Ast, dividend: Ast, divisor: Ast) -> Known:
        (left, a), (right, b) = self.of(dividend.copy()), self.of(divisor.copy())
        kind = decimal_kind(38, 18)
        plain = Fact(kind, fails=False)
        shape, size, other = decimal(a.kind), a.size, b.size
        if a.kind != b.kind or shape is None or size is None or other is None or a.fails or b.fails:
            return ast, plain
        unit = 10 ** shape[1]
        if 2 * size * unit * 10**18 + other * unit >= 10**38 or not fits(
            Fact(low=Fraction(0), high=max(size, other) * unit), a.kind
        ):
            return ast, plain
        positive = b.low is not None and b.low >= 0
        made = small_quotient(left, right, shape[1], positive=positive, nonzero=b.nonzero)
        size *= unit
        nulls = a.nulls or b.nulls or not b.nonzero
        return made, replace(plain, nulls=nulls, low=-size, high=size)

    def _coalesce(self, ast: Ast) -> Known:
        known = [self.of(arg) for arg in ast.expressions]
        kind = _result(_common([fact.kind for _, fact in known]))
        if kind is None:
            return _with(ast, expressions=[made for made, _ in known]), Fact()
        found: list[Known] = []
        for made, fact in known:
            if fact.values or fact.fails:
                found.append((made, fact))
            if not fact.nulls and not fact.fails:
                break
        if not found:
            return s.null(), null(kind)
        merged = one_of(fact for _, fact in found)
        merged = replace(merged, kind=kind, nulls=all(fact.nulls for _, fact in found))
        if len(found) == 1:
            return _as(found[0], kind), merged
        if all(fact.kind != kind for _, fact in found):
            found[-1] = _as(found[-1], kind), found[-1][1]
        return _with(ast, expressions=[made for made, _ in found]), merged

    def _abs(self, ast: Ast) -> Known:
        inner, fact = self.of(ast.expressions[0])
        if not is_number(fact.kind) or fact.kind == NUMBER:
            return _with(ast, expressions=[inner]), Fact()
        size = fact.size
        low = None if size is None else Fraction(0)
        fails = fact.fails or (fact.kind in INTEGERS and size is None)
        return _with(ast, expressions=[inner]), replace(fact, low=low, high=size, fails=fails)

    def _unnest(self, ast: Ast) -> Known:
        array = ast.expressions[0]
        if not isinstance(array, exp.Array) or not array.expressions:
            return ast, Fact()
        merged = one_of(self.of(item)[1] for item in array.expressions)
        # It makes rows: it must not be taken for a constant.
        return ast, merged if merged.low != merged.high else Fact(merged.kind, fails=merged.fails)

    def _is(self, ast: Ast) -> Known:
        if not isinstance(ast.expression, exp.Null):
            return _with(ast, this=self.of(ast.this)[0]), Fact()
        inner, fact = self.of(ast.this)
        may = truth(may_hold=fact.nulls, may_not=fact.values, nulls=False, fails=fact.fails)
        return _with(ast, this=_closed(inner)), may

    def _not(self, ast: Ast) -> Known:
        inner, fact = self.of(ast.this)
        if fact.kind != BOOLEAN:
            return _with(ast, this=_closed(inner)), Fact()
        may = truth(
            may_hold=fact.values and fact.low != 1,
            may_not=fact.values and fact.high != 0,
            nulls=fact.nulls,
            fails=fact.fails,
        )
        return _with(ast, this=_closed(inner)), may

    def _and(self, ast: Ast) -> Known:
        return self._connected(ast, neutral=True)

    def _or(self, ast: Ast) -> Known:
        return self._connected(ast, neutral=False)

    def _connected(self, ast: Ast, *, neutral: bool) -> Known:
        sides = [self.of(ast.this), self.of(ast.expression)]
        return self._joined(ast, sides, neutral=neutral)

    def _joined(self, ast: Ast, sides: Sequence[Known], *, neutral: bool) -> Known:
        if any(fact.kind != BOOLEAN for _, fact in sides):
            return _with(ast, this=_closed(sides[0][0]), expression=_closed(sides[1][0])), Fact()
        whole, other = Fraction(int(neutral)), Fraction(int(not neutral))
        fails = any(fact.fails for _, fact in sides)
        for made, fact in sides:
            if fact.constant == other and not fact.fails:
                return made, fact
        kept = [(made, fact) for made, fact in sides if fact.constant != whole or fact.fails]
        if not kept:
            return sides[0]
        if len(kept) == 1:
            return kept[0]
        facts = [fact for _, fact in kept]
        may_hold, may_not = _either(facts) if neutral else tuple(reversed(_either(facts, False)))
        merged = truth(
            may_hold=may_hold,
            may_not=may_not,
            nulls=any(fact.nulls for fact in facts),
            fails=fails,
        )
        return _with(ast, this=_closed(kept[0][0]), expression=_closed(kept[1][0])), merged

    def _compared(self, ast: Ast) -> Known:
        (left, a), (right, b) = self.of(ast.this), self.of(ast.expression)
        made = _with(ast, this=_closed(left), expression=_closed(right))
        fails = a.fails or b.fails or not _comparable(a, b)
        if not a.values or not b.values:
            return made, replace(null(BOOLEAN), fails=fails)
        may_hold, may_not = _outcomes(type(ast), a, b)
        return made, truth(
            may_hold=may_hold, may_not=may_not, nulls=a.nulls or b.nulls, fails=fails
        )

    def _same(self, ast: Ast) -> Known:
        (left, a), (right, b) = self.of(ast.this), self.of(ast.expression)
        made = _with(ast, this=_closed(left), expression=_closed(right))
        fails = a.fails or b.fails or not _comparable(a, b)
        return made, truth(may_hold=True, may_not=True, nulls=False, fails=fails)

    def _between(self, ast: Ast) -> Known:
        inner, fact = self.of(ast.this)
        (low, a), (high, b) = self.of(ast.args["low"]), self.of(ast.args["high"])
        made = _with(ast, this=_closed(inner), low=_closed(low), high=_closed(high))
        above, below = _outcomes(exp.GTE, fact, a), _outcomes(exp.LTE, fact, b)
        fails = any(x.fails for x in (fact, a, b)) or not (
            _comparable(fact, a) and _comparable(fact, b)
        )
        return made, truth(
            may_hold=above[0] and below[0],
            may_not=above[1] or below[1],
            nulls=fact.nulls or a.nulls or b.nulls,
            fails=fails,
        )

    def _neg(self, ast: Ast) -> Known:
        inner, fact = self.of(ast.this)
        made = _with(ast, this=_closed(inner))
        if not is_number(fact.kind):
            return made, Fact()
        out = negated(fact)
        return made, replace(out, fails=fact.fails or not _holds(out))

    def _add(self, ast: Ast) -> Known:
        (left, a), (right, b) = self.of(ast.this), self.of(ast.expression)
        return self._operated(ast, (left, a), (right, b), *sum_of(a, b))

    def _sub(self, ast: Ast) -> Known:
        (left, a), (right, b) = self.of(ast.this), self.of(ast.expression)
        low, high = sum_of(a, negated(b))
        if a.kind == b.kind == DATE:
            made = _with(ast, this=_closed(left), expression=_closed(right))
            nulls, fails = a.nulls or b.nulls, a.fails or b.fails
            return made, Fact(BIGINT, a.values and b.values, nulls, low, high, fails)
        return self._operated(ast, (left, a), (right, b), low, high)

    def _mul(self, ast: Ast) -> Known:
        (left, a), (right, b) = self.of(ast.this), self.of(ast.expression)
        kind = _operation(exp.Mul, a, b)
        for kept, other in (((left, a), b), ((right, b), a)):
            if other.constant == 1 and not other.fails and kept[1].kind == kind is not None:
                return kept
        return self._operated(ast, (left, a), (right, b), *product_of(a, b))

    def _operated(
        self,
        ast: Ast,
        left: Known,
        right: Known,
        low: Fraction | None,
        high: Fraction | None,
    ) -> Known:
        a, b = left[1], right[1]
        made = _with(ast, this=_closed(left[0]), expression=_closed(right[0]))
        kind = _operation(type(ast), a, b)
        if kind is None:
            return made, Fact()
        out = Fact(kind, a.values and b.values, a.nulls or b.nulls, low, high)
        operands = all(_casts(x, kind) or type(ast) is exp.Mul for x in (a, b))
        return made, replace(out, fails=a.fails or b.fails or not (operands and _holds(out)))

    def _mod(self, ast: Ast) -> Known:
        (left, a), (right, b) = self.of(ast.this), self.of(ast.expression)
        made = _with(ast, this=_closed(left), expression=_closed(right))
        if a.kind != b.kind or not is_number(a.kind) or a.kind == NUMBER:
            return made, Fact()
        if a.size is not None and b.low is not None and a.size < b.low and not (b.fails or b.nulls):
            return left, a
        return made, Fact(
            a.kind,
            a.values and b.values,
            a.nulls or b.nulls,
            None if a.low is None else min(a.low, Fraction(0)),
            None if a.high is None else max(a.high, Fraction(0)),
            # By zero it fails.
            a.fails or b.fails or not b.nonzero,
        )

    def _case(self, ast: Ast) -> Known:
        if ast.args.get("this") is not None:
            return ast, Fact()
        branches: list[tuple[Ast, Fact, Ast, Fact]] = []
        every: list[Ast] = []
        kinds: list[str | None] = []
        otherwise: Known | None = None
        before = self._columns
        for one in ast.args["ifs"]:
            held, condition = self.condition(one.this)
            with self._given(held):
                value, fact = self.of(one.args["true"])
            self._exclude(held)
            every.append(exp.If(this=held, true=value))
            kinds.append(fact.kind)
            if otherwise is not None or (condition.never and not condition.fails):
                continue
            if condition.always and not condition.fails:
                otherwise = value, fact
                continue
            branches.append((held, condition, value, fact))
        default = ast.args.get("default")
        last = (s.null(), null()) if default is None else self.of(default)
        self._columns = before
        kinds.append(last[1].kind)
        kind = _result(_common(kinds))
        if kind is None:
            return exp.Case(ifs=every, default=None if default is None else last[0]), Fact()
        last = otherwise or last
        facts = [fact for _, _, _, fact in branches] + [last[1]]
        merged = one_of(facts)
        fails = merged.fails or any(condition.fails for _, condition, _, _ in branches)
        out = replace(merged, kind=kind, fails=fails)
        if not branches:
            return _as(last, kind), out
        if not fails and all(value == last[0] for _, _, value, _ in branches):
            return _as(last, kind), out
        typed = any(fact.kind == kind for fact in facts)
        ifs = [exp.If(this=held, true=value) for held, _, value, _ in branches]
        last_value = last[0] if typed else _as(last, kind)
        made = exp.Case(ifs=ifs, default=None if isinstance(last_value, exp.Null) else last_value)
        return made, out

    def _sum(self, ast: Ast) -> Known:
        inner, fact = self.of(ast.this)
        made = _with(ast, this=inner)
        kind = _summed(fact.kind)
        if kind is None:
            return made, Fact()
        low, high = total_of(fact, self._rows)
        # The sum of a whole relation has to stay one, or there were as many rows as it has.
        whole = not self._grouped
        out = Fact(kind, fact.values or whole, fact.nulls or whole, low, high)
        return made, replace(out, fails=fact.fails or not _holds(out))

    def _extreme(self, ast: Ast) -> Known:
        inner, fact = self.of(ast.this)
        if ast.expressions or fact.kind in (None, NUMBER, STRING, NULL):
            return ast, Fact()
        whole = not self._grouped
        return _with(ast, this=inner), replace(
            fact, values=fact.values or whole, nulls=fact.nulls or whole
        )

    def _window(self, ast: Ast) -> Known:
        """A window's frame is never empty where it ends at the current row, so that what is known of the aggregate holds for it."""
        spec = ast.args.get("spec")
        partition = [self.of(one) for one in ast.args.get("partition_by") or ()]
        parts = [made for made, fact in partition if not _is_constant(fact)]
        made = _with(ast, partition_by=parts)
        if not isinstance(ast.this, exp.Sum) or spec is None or spec.args["end"] != "CURRENT ROW":
            return made, Fact()
        inside = Simplifier(self._columns, rows=self._rows, grouped=True, same=self._copies)
        total, fact = inside._sum(ast.this)
        made.set("this", total)
        return made, fact


def _written(made: Ast, fact: Fact) -> Ast:
    """What always is the same, as a constant."""
    if fact.fails or fact.kind is None or isinstance(made, exp.Literal | exp.Null | exp.Boolean):
        return made
    if not fact.values:
        if fact.kind in (NULL, STRING):
            return s.null()
        return made if _is_typed_null(made, fact.kind) else _typed(s.null(), fact.kind)
    value = fact.constant
    if value is None or fact.kind in (NUMBER, DATE):
        return made
    if fact.kind == BOOLEAN:
        return s.boolean(value == 1)
    if isinstance(made, exp.Cast) and isinstance(made.this, exp.Literal | exp.Paren):
        return made
    if not is_number(fact.kind):
        return made
    shape = decimal(fact.kind)
    scale = 0 if shape is None else shape[1]
    unscaled = value * 10**scale
    if unscaled.denominator != 1:
        return made
    text = str(Decimal(unscaled.numerator).scaleb(-scale)) if scale else str(value.numerator)
    if scale and "E" in text:
        text = format(Decimal(text), "f")
    return _typed(s.num(text), fact.kind)


def _is_typed_null(made: Ast, kind: str) -> bool:
    return (
        isinstance(made, exp.Cast)
        and isinstance(made.this, exp.Null)
        and kind_of(made.args["to"]) == kind
    )


def _typed(ast: Ast, kind: str) -> Ast:
    return exp.Cast(this=ast, to=exp.DataType.build(kind, dialect=Engine.DUCKDB.value))


def _as(known: Known, kind: str) -> Ast:
    """An expression where one of type `kind` stood."""
    made, fact = known
    return made if fact.kind == kind else _typed(made, kind)


def _result(kind: str | None) -> str | None:
    """The type of a result, where its parts' may be that of a text as it is written."""
    return "TEXT" if kind == STRING else kind


def _with(ast: Ast, **parts: Ast | Sequence[Ast]) -> Ast:
    for name, part in parts.items():
        ast.set(name, part)
    return ast


def _closed(ast: Ast) -> Ast:
    """In parentheses where it is an operator."""
    operator = isinstance(ast, exp.Binary | exp.Not | exp.Neg | exp.Between)
    return exp.Paren(this=ast) if operator and not isinstance(ast, exp.Dot) else ast


def _bare(ast: Ast) -> Ast:
    while isinstance(ast, exp.Paren):
        ast = ast.this
    return ast


def _conjuncts(condition: Ast) -> list[Ast]:
    found, waiting = list[Ast](), [condition]
    while waiting:
        node = _bare(waiting.pop())
        if isinstance(node, exp.And):
            waiting += [node.this, node.expression]
        else:
            found.append(node)
    return found


def _needed(ast: Ast) -> list[Ast]:
    """Columns that are not NULL where an expression is not."""
    found, waiting = list[Ast](), [ast]
    while waiting:
        node = waiting.pop()
        if isinstance(node, exp.Column):
            found.append(node)
        elif isinstance(node, exp.Paren | exp.Cast | exp.TryCast | exp.Neg):
            waiting.append(node.this)
        elif isinstance(node, exp.Add | exp.Sub | exp.Mul):
            waiting += [node.this, node.expression]
    return found


def _is_constant(fact: Fact) -> bool:
    """Whether rows are alike in it."""
    if fact.fails:
        return False
    return not fact.values or (fact.constant is not None and fact.kind is not None)


def _common(kinds: Sequence[str | None]) -> str | None:
    """The type of what comes out of one of several expressions; None where that is not known."""
    found = set(kinds) - {NULL}
    if not found:
        return NULL
    if None in found:
        return None
    if len(found) == 1:
        (only,) = found
        return None if only == NUMBER else only
    if STRING in found and found == {STRING, "TEXT"}:
        return "TEXT"
    if NUMBER in found and len(found) == 2:
        (typed,) = found - {NUMBER}
        return typed if typed in (BIGINT, HUGEINT) else None
    return None


def _casts(fact: Fact, kind: str) -> bool:
    """Whether a cast of any of the values succeeds."""
    if fact.kind == kind or not fact.values:
        return True
    if kind == "TEXT":
        return fact.kind is not None
    if is_number(fact.kind) and is_number(kind):
        return fits(fact, kind)
    if is_number(fact.kind) and kind == "DOUBLE":
        return True
    if fact.kind == DATE and kind == "TIMESTAMP":
        low, high = fact.low, fact.high
        return low is not None and high is not None and low >= FIRST_DAY and high <= LAST_DAY
    return False


def _is_finer(kind: str, fact: Fact) -> bool:
    """Whether a cast between numbers rounds nothing."""
    if not (is_number(fact.kind) and is_number(kind)):
        return False
    scales = [shape[1] if (shape := decimal(one)) else 0 for one in (fact.kind, kind)]
    return scales[0] <= scales[1]


def _cast_bound(value: Fraction | None, fact: Fact, kind: str) -> Fraction | None:
    """A bound after a cast, which may round by half a unit of the last digit."""
    if value is None or not (is_number(fact.kind) and is_number(kind)):
        return None
    shape = decimal(kind)
    unit = Fraction(1, 10 ** (shape[1] if shape else 0))
    if (value / unit).denominator == 1:
        return value
    rounded = value / unit
    whole = rounded.numerator // rounded.denominator
    return (whole if value == fact.low else whole + 1) * unit


def _read_literal(literal: Ast, kind: str) -> Fact | None:
    """What a written text or number is once it is cast."""
    text = str(literal.this)
    if text in _TIMES:
        return Fact(kind, nulls=False, fails=False) if kind == BIGINT else None
    if kind == DATE:
        try:
            day = (datetime.date.fromisoformat(text) - _EPOCH).days
        except ValueError:
            return None
        return number(day, DATE)
    if kind == "TIMESTAMP":
        try:
            datetime.datetime.fromisoformat(text)
        except ValueError:
            return None
        return Fact(kind, nulls=False, fails=False)
    if not is_number(kind):
        return None
    try:
        value = Fraction(Decimal(text))
    except (InvalidOperation, ValueError, OverflowError):
        return None
    shape = decimal(kind)
    exact = (value * 10 ** (shape[1] if shape else 0)).denominator == 1
    fact = number(value, kind)
    return fact if exact and fits(fact, kind) else None


def _either(facts: Sequence[Fact], neutral: bool = True) -> tuple[bool, bool]:
    """Of AND (`neutral`): whether it may be TRUE, and whether it may be FALSE; of OR: FALSE, and TRUE."""
    whole, other = Fraction(int(neutral)), Fraction(int(not neutral))
    may_whole = all(fact.values and whole in (fact.low, fact.high) for fact in facts)
    may_other = any(fact.values and other in (fact.low, fact.high) for fact in facts)
    return may_whole, may_other


def _comparable(a: Fact, b: Fact) -> bool:
    """Whether a comparison takes the values as they are."""
    if a.kind is None or b.kind is None:
        return False
    if a.kind == b.kind or NULL in (a.kind, b.kind) or {a.kind, b.kind} == {STRING, "TEXT"}:
        return True
    if a.kind in INTEGERS and b.kind in INTEGERS:
        return True
    for typed, other in ((a, b), (b, a)):
        if other.kind == NUMBER and is_number(typed.kind):
            assert typed.kind is not None
            return fits(other, typed.kind)
    return False


def _outcomes(operator: type[exp.Expression], a: Fact, b: Fact) -> tuple[bool, bool]:
    """Whether a comparison of two values may hold, and whether it may not."""
    if a.texts is not None and b.texts is not None and operator in (exp.EQ, exp.NEQ):
        equal, differ = bool(a.texts & b.texts), len(a.texts | b.texts) > 1
        return (equal, differ) if operator is exp.EQ else (differ, equal)
    exact = all(is_number(x.kind) or x.kind in (DATE, BOOLEAN) for x in (a, b))
    if exact and operator in (exp.EQ, exp.NEQ) and _zero_and_other(a, b):
        return (False, True) if operator is exp.EQ else (True, False)
    if not exact or a.low is None or a.high is None or b.low is None or b.high is None:
        return True, True
    if operator in (exp.GT, exp.GTE):
        return _outcomes(exp.LT if operator is exp.GT else exp.LTE, b, a)
    if operator is exp.LT:
        return a.low < b.high, a.high >= b.low
    if operator is exp.LTE:
        return a.low <= b.high, a.high > b.low
    may_equal = a.low <= b.high and b.low <= a.high
    may_differ = not (a.low == a.high == b.low == b.high)
    return (may_equal, may_differ) if operator is exp.EQ else (may_differ, may_equal)


def _zero_and_other(a: Fact, b: Fact) -> bool:
    """Whether one is 0 and the other never."""
    return any(x.constant == 0 and y.nonzero for x, y in ((a, b), (b, a)))


def _operation(operator: type[exp.Expression], a: Fact, b: Fact) -> str | None:
    """The type that DuckDB gives an operation, where that is certain."""
    for x, y in ((a, b), (b, a)):
        if x.kind in INTEGERS:
            if y.kind == NUMBER and x.kind in (BIGINT, HUGEINT) and fits(y, x.kind):
                return x.kind
            if y.kind in INTEGERS and INTEGERS[x.kind] >= INTEGERS[y.kind]:
                return x.kind
    if decimal(a.kind) is None and decimal(b.kind) is None:
        return None
    first, second = decimal_of(a), decimal_of(b)
    if first is None or second is None:
        return None
    if operator is exp.Mul:
        scale = first[1] + second[1]
        return decimal_kind(38, scale) if first[0] + second[0] >= 38 >= scale else None
    scale = max(first[1], second[1])
    whole = max(first[0] - first[1], second[0] - second[1])
    return decimal_kind(min(38, whole + scale + 1), scale)


def _holds(fact: Fact) -> bool:
    """Whether all values have a place in their type."""
    return fact.kind == NUMBER or fits(fact, fact.kind)


def _summed(kind: str | None) -> str | None:
    """The type of a sum."""
    if kind in INTEGERS:
        return HUGEINT
    shape = decimal(kind)
    return None if shape is None else decimal_kind(38, shape[1])


_RULES: dict[type[exp.Expression], Callable[[Simplifier, Ast], Known]] = {
    exp.Column: Simplifier._column,
    exp.Literal: Simplifier._literal,
    exp.Null: Simplifier._null,
    exp.Boolean: Simplifier._boolean,
    exp.Paren: Simplifier._paren,
    exp.Cast: Simplifier._cast,
    exp.TryCast: Simplifier._cast,
    exp.Anonymous: Simplifier._call,
    exp.Is: Simplifier._is,
    exp.Not: Simplifier._not,
    exp.And: Simplifier._and,
    exp.Or: Simplifier._or,
    **dict.fromkeys(_COMPARISONS, Simplifier._compared),
    exp.NullSafeEQ: Simplifier._same,
    exp.Between: Simplifier._between,
    exp.Neg: Simplifier._neg,
    exp.Add: Simplifier._add,
    exp.Sub: Simplifier._sub,
    exp.Mul: Simplifier._mul,
    exp.Mod: Simplifier._mod,
    exp.Case: Simplifier._case,
    exp.Sum: Simplifier._sum,
    exp.Max: Simplifier._extreme,
    exp.Min: Simplifier._extreme,
    exp.Window: Simplifier._window,
}

_CALLS: dict[str, Callable[[Simplifier, Ast], Known]] = {
    "TRY": Simplifier._try,
    "COALESCE": Simplifier._coalesce,
    "ABS": Simplifier._abs,
    "UNNEST": Simplifier._unnest,
}
#: Functions of which it is known that they give the same for the same.
SETTLED = frozenset(("TRY", "COALESCE", "ABS", "NULLIF", "GREATEST", "LEAST"))
