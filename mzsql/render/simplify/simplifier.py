"""The simplifier: applies the rules, and keeps track of what is known where."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction

from sqlglot import expressions as exp

from mzsql.expr.functions import sql as s
from mzsql.render.facts import INTEGERS, Bound, Fact, bounded, is_number, null
from mzsql.render.simplify import aggregates, arithmetic, comparisons, leaves, logic
from mzsql.render.simplify.context import Calls, ColumnKey, Context, Rules
from mzsql.render.simplify.pieces import (
    FALSE,
    TRUE,
    ZERO,
    Ast,
    Known,
    bare,
    closed,
    conjuncts,
    needed,
    with_parts,
    written,
)

#: Expressions nested deeper than this are left as they are.
DEPTH = 150


class Simplifier:
    """Simplifies expressions over one query's columns.

    Args:
        columns: facts by (the relation's alias or None, the column's name).
        rows: most rows that an aggregate may see.
        grouped: whether aggregates are over groups, which have at least one row each.
        same: columns that always equal other columns of their relation, which are read instead.
        totals: upper bounds on the sums of columns' absolute values over all rows.
    """

    def __init__(
        self,
        columns: Mapping[tuple[str | None, str], Fact],
        *,
        rows: int,
        grouped: bool,
        same: Mapping[tuple[str | None, str], str] | None = None,
        totals: Mapping[tuple[str | None, str], Fraction] | None = None,
    ) -> None:
        self._columns = dict(columns)
        self._totals = totals or {}
        self._copies = same or {}
        self.rows = rows
        self.grouped = grouped
        self._depth = 0
        #: conditions that hold here
        self._held: frozenset[Ast] = frozenset()
        #: expressions that are greater than 0 here
        self._positive: frozenset[Ast] = frozenset()
        #: whether only the fact is wanted, not the expression
        self._trying = False

    def of(self, ast: Ast) -> Known:
        """The expression's simplest form, and its fact. May reuse and modify parts of `ast`."""
        rule = _RULES.get(type(ast))
        if rule is None or self._depth >= DEPTH:
            return ast, Fact()
        self._depth += 1
        try:
            made, fact = rule(self, ast)
        finally:
            self._depth -= 1
        fact = bounded(fact)
        if self._positive and fact.kind in INTEGERS and bare(made) in self._positive:
            low = Fraction(1) if fact.low is None else max(fact.low, Fraction(1))
            fact = replace(fact, nulls=False, low=low)
        return written(made, fact), fact

    def condition(self, ast: Ast) -> Known:
        """As `of`, for an expression of which it matters only whether it is TRUE."""
        node = bare(ast)
        if self._depth >= DEPTH or not isinstance(node, exp.And | exp.Or):
            made, fact = self.of(ast)
            if self._held and not fact.always and bare(made) in self._held:
                return s.boolean(True), TRUE
            asked = logic.without_default(made)
            return (made, fact) if asked is None else (asked, replace(fact, nulls=True))
        self._depth += 1
        try:
            first = self.condition(node.this)
            decided = self._decided(node, first[0]) if isinstance(node, exp.And) else None
            sides = [first, decided or self.condition(node.expression)]
        finally:
            self._depth -= 1
        for i, (_, fact) in enumerate(sides):
            if fact.never and not fact.fails:
                return sides[1 - i] if isinstance(node, exp.Or) else (s.boolean(False), FALSE)
        joined, fact = logic.joined(node, sides, neutral=isinstance(node, exp.And))
        return closed(written(joined, fact)), fact

    def _decided(self, node: Ast, left: Ast) -> Known | None:
        """The right side of an AND, if it is decided by the left side. It is evaluated separately: the engine may
        evaluate it for rows that the left side rejects, so it must not lose a guard because of the left side.
        """
        if self._trying:
            with self.given(left):
                return self.condition(node.expression)
        if isinstance(bare(node.expression), exp.And | exp.Or):
            return None
        self._trying = True
        try:
            with self.given(left):
                _, fact = self.condition(node.expression.copy())
        finally:
            self._trying = False
        if fact.fails or not (fact.always or fact.never):
            return None
        return s.boolean(fact.always), TRUE if fact.always else FALSE

    @contextmanager
    def given(self, condition: Ast | None) -> Iterator[None]:
        """Within the block, assume that a condition holds."""
        columns, held, positive = self._columns, self._held, self._positive
        if condition is not None:
            self._columns = dict(columns)
            self.refine(condition)
        try:
            yield
        finally:
            self._columns, self._held, self._positive = columns, held, positive

    def refine(self, condition: Ast) -> None:
        """Assume that a condition holds."""
        found = conjuncts(condition)
        self._held = self._held.union(found)
        for one in found:
            wanted_null = True
            node = one
            if isinstance(node, exp.Not):
                wanted_null, node = False, bare(node.this)
            if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
                inner = bare(node.this)
                columns = [inner] if wanted_null else needed(inner)
                for column in columns:
                    if isinstance(column, exp.Column):
                        self._learn(column, wanted_null)
            if isinstance(node, exp.GT) and bare(node.expression) == ZERO:
                self._positive = self._positive.union((bare(node.this),))

    def exclude(self, condition: Ast) -> None:
        """Assume that a condition does not hold: what is not equal to 0 is known to be nonzero."""
        node = bare(condition)
        if not isinstance(node, exp.EQ):
            return
        column, zero = bare(node.this), self.of(node.expression.copy())[1]
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

    def column(self, key: ColumnKey) -> Fact:
        """What is known of a column here."""
        return self._columns.get(key, Fact(fails=False))

    def total(self, ast: Ast) -> Bound:
        """Upper bound on the sum of an expression's absolute values over all rows; None if no more than its bounds is
        known.
        """
        node = bare(ast)
        if not isinstance(node, exp.Column):
            return None
        return self._totals.get((node.table or None, node.name))

    def copy_of(self, key: ColumnKey) -> str | None:
        """Another column of the same relation that always has the same values and is read instead; None if there is
        none.
        """
        return self._copies.get(key)

    def of_groups(self) -> Simplifier:
        """The same simplifier for aggregates over groups."""
        return Simplifier(
            self._columns, rows=self.rows, grouped=True, same=self._copies, totals=self._totals
        )


def _called(ctx: Context, ast: Ast) -> Known:
    """A call of a function by name."""
    rule = _CALLS.get(str(ast.this).upper())
    if rule is not None:
        return rule(ctx, ast)
    made = [ctx.of(arg)[0] for arg in ast.expressions]
    return with_parts(ast, expressions=made), Fact()


_RULES: Rules = {
    **leaves.RULES,
    **logic.RULES,
    **comparisons.RULES,
    **arithmetic.RULES,
    **aggregates.RULES,
    exp.Anonymous: _called,
}
_CALLS: Calls = {**logic.CALLS, **arithmetic.CALLS, **aggregates.CALLS}
#: Functions that always return the same for the same arguments.
SETTLED = frozenset(("TRY", "COALESCE", "ABS", "NULLIF", "GREATEST", "LEAST"))
