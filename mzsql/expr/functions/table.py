"""What a row of the table of functions says.

Promise: every scalar function, cast, operator, aggregate and table function is declared exactly once: its name, its overload's
types, its properties, and how each engine spells it. A spelling is built as a sqlglot AST, never parsed from text. Two spellings
belong to a function that can fail: its *value*, which never throws (NULL, or anything, where the function fails), and its
*errors*: conditions, each with the message a person reads. So an error is data in a dataflow and a step never throws on a value
(docs/architecture.md, decisions 4 and 10).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlglot import expressions as exp

from mzsql.repr.types import RelationType, SqlType


class Engine(enum.Enum):
    """The engines a plan is spelled for."""

    SPARK = "spark"
    DUCKDB = "duckdb"


@dataclass(frozen=True)
class Sql:
    """A SQL expression and the type of its value. Users must `.copy()` the AST before placing it twice."""

    ast: exp.Expression
    typ: SqlType


#: (engine, arguments, result type) to an AST whose value has the result type's Arrow type in that engine, or can be cast to it.
Spelling = Callable[[Engine, Sequence[Sql], SqlType], exp.Expression]
#: Result type, given or computed from the arguments' types (numeric scales).
ResultRule = SqlType | Callable[[Sequence[SqlType]], SqlType]


@dataclass(frozen=True)
class ErrorRule:
    """One way in which a function fails.

    Attributes:
        condition: a boolean AST, asked only where no argument of a strict function is NULL; NULL counts as false; never throws.
        message: text, or an AST that yields it.
        possible: whether it can happen at all for arguments of these types and this result type; None: always.
    """

    condition: Spelling
    message: str | Spelling
    possible: Callable[[Sequence[SqlType], SqlType], bool] | None = None


@dataclass(frozen=True)
class ScalarFunc:
    """One overload of a scalar function.

    Attributes:
        key: unique; what `Call.func` holds, and what EXPLAIN prints for ordinary functions and casts (``integer_to_text``).
        name: the SQL name it is called by: ``+``, ``lower``; for casts ``cast``.
        args: the types of the arguments (a numeric's scale is ignored in matching).
        variadic: the type of further arguments, any number of them.
        result: the result's type.
        explain: how EXPLAIN prints it: a format over the arguments, ``({0} + {1})``; empty means ``key(args…)``.
        strict: NULL in, NULL out.
        introduces_nulls: NULL may come out though none goes in.
        value: the spelling of its value.
        errors: the ways it fails, in order of precedence.
        negation: key of the function whose result is this one's negated (``lt_integer`` for ``gte_integer``), if any.
        monotone: whether it is monotone in each argument (for temporal filters and push-down).
        rounded: whether its value is the one nearest to what it means. False for roots, logarithms and their like, whose last digit
            is the library's, and so another one than PostgreSQL's. (Which functions run where: `mzsql.expr.functions.portable`.)
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
        """The result's type for arguments of these types."""
        return self.result(args) if callable(self.result) else self.result

    @property
    def may_error(self) -> bool:
        """Whether an evaluation can fail."""
        return bool(self.errors)


@dataclass(frozen=True)
class AggregateFunc:
    """One overload of an aggregate function.

    Attributes:
        key: unique; what `AggregateExpr.func` holds.
        name: the SQL name, also what EXPLAIN prints: ``sum``.
        args: the type of the argument.
        result: the result's type.
        kind: how it is maintained: ``accumulable`` (sum, count, any, all), ``hierarchical`` (min, max) or ``basic`` (the others).
        nullable: whether it can be NULL (of an empty group, or of NULLs only).
        ignores_nulls: whether NULL inputs are skipped.
        accumulators: for accumulable ones: name suffix and type of each additive partial sum.
        accumulate: AST of each partial sum's summand for one row with multiplicity `mz_diff`: (engine, [value, diff], type) → ASTs.
        finish: AST of the value from the partial sums and the group's size: (engine, accumulators, type) → AST.
        value: for hierarchical and basic ones: the aggregate over a group's rows, (engine, [value…], type) → AST.
        errors: conditions over the accumulators (for accumulable ones), such as overflow of the result's type.
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
        """The result's type for an argument of this type."""
        return self.result(args) if callable(self.result) else self.result

    def accumulator_types(self, arg: SqlType) -> tuple[tuple[str, SqlType], ...]:
        """Name suffix and type of each partial sum for an argument of this type: a numeric without a scale takes the argument's."""
        return tuple(
            (name, arg if typ.kind == "numeric" and typ.scale is None else typ)
            for name, typ in self.accumulators
        )


@dataclass(frozen=True)
class TableFunc:
    """One overload of a table function.

    Attributes:
        key: unique; what `FlatMap.func` holds, printed by EXPLAIN.
        name: the SQL name.
        args: the arguments' types.
        output: names and types of the columns it yields.
        rows: (engine, arguments, column types) to an AST of an array of the rows (one column: of its values; several: of structs
            with fields f1, f2, …), which the renderer unnests.
        columns: the columns' types where they depend on the arguments'.
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
        """The columns for arguments of these types."""
        return self.output if self.columns is None else self.columns(args)
