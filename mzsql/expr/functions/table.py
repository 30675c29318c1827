"""The rows of the table of functions.

Promise: every scalar function, cast, operator, aggregate and table function is declared exactly once: its name, its
overload's types, its properties, and its spelling for each engine. A spelling is built as a sqlglot AST, never parsed
from text. A function that can fail has two: its *value*, which never throws (NULL, or anything, where the function
fails), and its *errors*, conditions with messages for the user. So an error is data in a dataflow, and a step never
throws because of a value (docs/architecture.md, decisions 4 and 10).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlglot import expressions as exp

from mzsql.repr.types import RelationType, SqlType


class Engine(enum.Enum):
    """The engines that plans are spelled for."""

    SPARK = "spark"
    DUCKDB = "duckdb"


@dataclass(frozen=True)
class Sql:
    """A SQL expression and its type. Copy the AST with `.copy()` before placing it twice."""

    ast: exp.Expression
    typ: SqlType


#: A function of (engine, arguments, result type) that returns an AST whose value has, or can be cast to, the result
#: type's Arrow type in that engine.
Spelling = Callable[[Engine, Sequence[Sql], SqlType], exp.Expression]
#: The result type, or a function that computes it from the arguments' types (for the scale of a numeric).
ResultRule = SqlType | Callable[[Sequence[SqlType]], SqlType]


@dataclass(frozen=True)
class ErrorRule:
    """A way in which a function fails.

    Attributes:
        condition: a boolean AST that never throws; NULL counts as false. For a strict function it applies only where no
            argument is NULL.
        message: the message, or the spelling of one.
        possible: whether the error can happen for arguments and a result of these types; None: always.
    """

    condition: Spelling
    message: str | Spelling
    possible: Callable[[Sequence[SqlType], SqlType], bool] | None = None


@dataclass(frozen=True)
class ScalarFunc:
    """An overload of a scalar function.

    Attributes:
        key: unique; `Call.func` holds it, and EXPLAIN prints it for ordinary functions and casts (``integer_to_text``).
        name: the SQL name: ``+``, ``lower``; for casts ``cast``.
        args: the types of the arguments; a numeric's scale does not matter.
        variadic: the type of any number of further arguments.
        result: the type of the result.
        explain: how EXPLAIN prints a call: a format of the arguments, ``({0} + {1})``; empty for ``key(args…)``.
        strict: whether a NULL argument makes the result NULL.
        introduces_nulls: whether the result can be NULL for non-NULL arguments.
        value: the spelling of the value.
        errors: the ways it fails, in order of precedence.
        negation: the key of the function with the negated result (``lt_integer`` for ``gte_integer``), if any.
        monotone: whether it is monotone in each argument, for temporal filters and pushdown.
        rounded: whether the value is correctly rounded. Not so for roots, logarithms and the like, whose last digit
            depends on the library and may differ from PostgreSQL's. (Where functions run:
            `mzsql.expr.functions.portable`.)
    """

    key: str
    name: str
    args: tuple[SqlType, ...]
    result: ResultRule
    value: Spelling
    variadic: SqlType | None = None
    explain: str = ""
    strict: bool = True
    introduces_nulls: bool = False
    errors: tuple[ErrorRule, ...] = ()
    negation: str | None = None
    monotone: bool = False
    rounded: bool = True

    def result_type(self, args: Sequence[SqlType]) -> SqlType:
        """The type of the result for arguments of these types."""
        return self.result(args) if callable(self.result) else self.result

    @property
    def may_error(self) -> bool:
        """Whether an evaluation can fail."""
        return bool(self.errors)


@dataclass(frozen=True)
class AggregateFunc:
    """An overload of an aggregate function.

    Attributes:
        key: unique; `AggregateExpr.func` holds it.
        name: the SQL name, which EXPLAIN prints: ``sum``.
        args: the types of its arguments: one.
        result: the type of the result.
        kind: how it is maintained: ``accumulable`` (sum, count, any, all), ``hierarchical`` (min, max) or ``basic``
            (all others).
        nullable: whether the result can be NULL, for an empty group or for NULLs only.
        ignores_nulls: whether NULL inputs are skipped.
        accumulators: if accumulable, the name's suffix and the type of each additive partial sum.
        accumulate: makes each partial sum's summand for a row with multiplicity `mz_diff`.
        finish: the spelling of the value from the partial sums and the group's size.
        value: if hierarchical or basic, the spelling of the aggregate over a group's rows.
        errors: conditions over the accumulators, if accumulable, such as an overflow of the result's type.
    """

    key: str
    name: str
    args: tuple[SqlType, ...]
    result: ResultRule
    kind: str
    nullable: bool = True
    ignores_nulls: bool = True
    accumulators: tuple[tuple[str, SqlType], ...] = ()
    accumulate: Callable[[Engine, Sql, exp.Expression], Sequence[exp.Expression]] | None = None
    finish: Spelling | None = None
    value: Spelling | None = None
    errors: tuple[ErrorRule, ...] = ()

    def result_type(self, args: Sequence[SqlType]) -> SqlType:
        """The type of the result for an argument of this type."""
        return self.result(args) if callable(self.result) else self.result

    def accumulator_types(self, arg: SqlType) -> tuple[tuple[str, SqlType], ...]:
        """The name's suffix and the type of each partial sum for an argument of type ``arg``, whose scale a numeric
        without one takes.
        """
        return tuple(
            (name, arg if typ.kind == "numeric" and typ.scale is None else typ)
            for name, typ in self.accumulators
        )


@dataclass(frozen=True)
class TableFunc:
    """An overload of a table function.

    Attributes:
        key: unique; `FlatMap.func` holds it, and EXPLAIN prints it.
        name: the SQL name.
        args: the types of the arguments.
        names: the names of the output columns.
        output: the types of the output columns.
        rows: the spelling of an array of the rows, which the renderer unnests: of values for one column, else of
            structs with fields f1, f2, ….
        errors: the ways it fails, in order of precedence.
        columns: the types of the output columns where they depend on the arguments'.
    """

    key: str
    name: str
    args: tuple[SqlType, ...]
    names: tuple[str, ...]
    output: RelationType
    rows: Spelling
    errors: tuple[ErrorRule, ...] = ()
    columns: Callable[[Sequence[SqlType]], RelationType] | None = None

    def output_type(self, args: Sequence[SqlType]) -> RelationType:
        """The types of the output columns for arguments of these types."""
        return self.output if self.columns is None else self.columns(args)
