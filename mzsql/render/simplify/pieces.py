"""What the rules of simplification share: expressions with their facts, and small helpers."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from sqlglot import expressions as exp

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.table import Engine
from mzsql.render.facts import (
    BIGINT,
    BOOLEAN,
    DATE,
    FIRST_DAY,
    HUGEINT,
    LAST_DAY,
    NULL,
    NUMBER,
    STRING,
    Fact,
    decimal,
    fits,
    is_number,
    truth,
)

Ast = exp.Expression
#: An expression and its fact.
Known = tuple[Ast, Fact]

TRUE = truth(may_hold=True, may_not=False, nulls=False, fails=False)
FALSE = truth(may_hold=False, may_not=True, nulls=False, fails=False)
ZERO = exp.Literal.number(0)


def kind_of(typ: exp.DataType) -> str:
    """The name of a type, as in facts."""
    return typ.sql(Engine.DUCKDB.value)


def written(made: Ast, fact: Fact) -> Ast:
    """An expression that always has the same value as a constant; others unchanged."""
    if fact.fails or fact.kind is None or isinstance(made, exp.Literal | exp.Null | exp.Boolean):
        return made
    if not fact.values:
        if fact.kind in (NULL, STRING):
            return s.null()
        return made if _is_typed_null(made, fact.kind) else typed(s.null(), fact.kind)
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
    return typed(s.num(text), fact.kind)


def _is_typed_null(made: Ast, kind: str) -> bool:
    return (
        isinstance(made, exp.Cast)
        and isinstance(made.this, exp.Null)
        and kind_of(made.args["to"]) == kind
    )


def typed(ast: Ast, kind: str) -> Ast:
    """A cast to the type `kind`."""
    return exp.Cast(this=ast, to=exp.DataType.build(kind, dialect=Engine.DUCKDB.value))


def as_kind(known: Known, kind: str) -> Ast:
    """The expression with type `kind`, cast if need be."""
    made, fact = known
    return made if fact.kind == kind else typed(made, kind)


def result_kind(kind: str | None) -> str | None:
    """The type of a result; that of a text literal becomes TEXT."""
    return "TEXT" if kind == STRING else kind


def with_parts(ast: Ast, **parts: Ast | Sequence[Ast]) -> Ast:
    """The same node with parts replaced, in place."""
    for name, part in parts.items():
        ast.set(name, part)
    return ast


def closed(ast: Ast) -> Ast:
    """The expression, in parentheses if it is an operator."""
    operator = isinstance(ast, exp.Binary | exp.Not | exp.Neg | exp.Between)
    return exp.Paren(this=ast) if operator and not isinstance(ast, exp.Dot) else ast


def bare(ast: Ast) -> Ast:
    """The expression without the parentheses around it."""
    while isinstance(ast, exp.Paren):
        ast = ast.this
    return ast


def conjuncts(condition: Ast) -> list[Ast]:
    """The operands of a condition's ANDs, without parentheses."""
    found, waiting = list[Ast](), [condition]
    while waiting:
        node = bare(waiting.pop())
        if isinstance(node, exp.And):
            waiting += [node.this, node.expression]
        else:
            found.append(node)
    return found


def columns_named(query: exp.Select, besides: exp.Expression | None = None) -> list[exp.Column]:
    """The columns that a query names itself, without those in queries that it reads or defines, and in the condition
    ``besides``.
    """
    found: list[exp.Column] = []
    waiting: list[object] = [v for part, v in query.args.items() if part not in ("with_", "from_")]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting += node
        elif isinstance(node, exp.Join):
            waiting += [value for part, value in node.args.items() if part != "this"]
        elif isinstance(node, exp.Column):
            found.append(node)
        elif isinstance(node, exp.Expression) and node is not besides:
            waiting += node.args.values()
    return found


def needed(ast: Ast) -> list[Ast]:
    """Columns that are not NULL wherever the expression is not."""
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


def is_constant(fact: Fact) -> bool:
    """Whether it has the same value for all rows."""
    if fact.fails:
        return False
    return not fact.values or (fact.constant is not None and fact.kind is not None)


def common_kind(kinds: Sequence[str | None]) -> str | None:
    """The type of the result of a choice between expressions; None if it is not certain."""
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


def casts(fact: Fact, kind: str) -> bool:
    """Whether a cast succeeds for all possible values."""
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


def holds(fact: Fact) -> bool:
    """Whether all possible values fit the type."""
    return fact.kind == NUMBER or fits(fact, fact.kind)
