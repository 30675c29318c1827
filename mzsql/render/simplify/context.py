"""The interface by which a rule simplifies a node: its simplified parts, and what may be assumed there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Protocol

from sqlglot import expressions as exp

from mzsql.render.facts import Bound, Fact
from mzsql.render.simplify.pieces import Ast, Known

#: A column: the alias of its relation or None, and its name.
ColumnKey = tuple[str | None, str]


class Context(Protocol):
    """The simplification that a rule is part of."""

    @property
    def rows(self) -> int:
        """Most rows that an aggregate may see."""

    @property
    def grouped(self) -> bool:
        """Whether aggregates are over groups, which have at least one row each."""

    def of(self, ast: Ast) -> Known:
        """A part's simplest form, and its fact."""

    def condition(self, ast: Ast) -> Known:
        """As `of`, for an expression of which it matters only whether it is TRUE."""

    def column(self, key: ColumnKey) -> Fact:
        """What is known of a column here."""

    def total(self, ast: Ast) -> Bound:
        """Upper bound on the sum of an expression's absolute values over all rows; None if no more than its bounds is
        known.
        """

    def copy_of(self, key: ColumnKey) -> str | None:
        """Another column of the same relation that always has the same values and should be read instead; None if there
        is none.
        """

    def given(self, condition: Ast | None) -> AbstractContextManager[None]:
        """Within the block, assume that a condition holds; what is learned from it is forgotten afterwards."""

    def exclude(self, condition: Ast) -> None:
        """Assume that a condition does not hold."""

    def of_groups(self) -> Context:
        """The same context for aggregates over groups."""


#: Simplifies one node; asks the context for its parts.
Rule = Callable[[Context, Ast], Known]
#: Rules by class of the node.
Rules = Mapping[type[exp.Expression], Rule]
#: Rules for functions, by name in capitals.
Calls = Mapping[str, Rule]
