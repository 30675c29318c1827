"""What a rule may ask for while it simplifies one node: its parts, simplified, and what is taken for granted there."""

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
    """The simplification that a rule is a part of."""

    @property
    def rows(self) -> int:
        """How many rows an aggregate may see at most."""

    @property
    def grouped(self) -> bool:
        """Whether aggregates are of groups, which have a row each."""

    def of(self, ast: Ast) -> Known:
        """A part's simplest form, and its fact."""

    def condition(self, ast: Ast) -> Known:
        """As `of`, where it matters only whether it is TRUE."""

    def column(self, key: ColumnKey) -> Fact:
        """What is known of a column here."""

    def total(self, ast: Ast) -> Bound:
        """What the absolute values of an expression come to at most, added up over all rows; None: no more than its bounds is known."""

    def copy_of(self, key: ColumnKey) -> str | None:
        """The column of the same relation that always has the same values and is read instead, or None."""

    def given(self, condition: Ast | None) -> AbstractContextManager[None]:
        """Within the block, take for granted that a condition holds; what is learned there is forgotten behind it."""

    def exclude(self, condition: Ast) -> None:
        """Take for granted that a condition does not hold."""

    def of_groups(self) -> Context:
        """The same for the aggregates of groups."""


#: Simplifies one node, whose parts it asks the context for.
Rule = Callable[[Context, Ast], Known]
#: Rules by the class of the node.
Rules = Mapping[type[exp.Expression], Rule]
#: Rules for functions, by their name in capitals.
Calls = Mapping[str, Rule]
