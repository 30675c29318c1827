"""Row-wise work: a `MapFilterProject` as a SELECT over a relation.

Promise: no row makes the SELECT throw. A row whose evaluation fails becomes an error row (mz_error set, every c
NULL), with the time and the multiplicity of the row that it came from. Predicates that cannot fail are applied
first, so that they protect expressions that can. Error rows of the input pass unchanged. An expression that several
others read is computed once, in a subquery below them, as are parts that would be written too often
(`mzsql.render.nodes.sharing`); others are written in place. Columns of these subqueries have an underscore in their names
(``m_0``, ``p_0``), because a lambda's parameter of the same name would hide them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from sqlglot import expressions as exp

from mzsql.expr import spell
from mzsql.expr.functions import sql as s
from mzsql.expr.functions.table import Engine, Sql
from mzsql.expr.mfp import MapFilterProject
from mzsql.expr.scalar import (
    Column,
    Literal,
    Scalar,
    Unmaterializable,
    scalar_type,
    substitute,
    support,
    walk,
)
from mzsql.render.nodes import sharing
from mzsql.render.statement import ERROR, Ast, col, named, null_of, select, subquery
from mzsql.repr.errors import Unsupported
from mzsql.repr.types import ColumnType


def check(expr: Scalar) -> None:
    """Refuse expressions that have no value at a given time of a dataflow.

    Raises:
        Unsupported: the expression calls a function of the current time or of the session.
    """
    for node in walk(expr):
        if isinstance(node, Unmaterializable):
            msg = f"cannot materialize call to {node.func}"
            hint = "filters on mz_now() and functions of the session can be used in one-shot queries only"
            raise Unsupported(msg, hint=hint)


def may_fail(expr: Scalar, columns: Sequence[ColumnType]) -> bool:
    """Whether an expression's evaluation can fail."""
    return sharing.can_fail(expr, columns)


def no_failure(exprs: Sequence[Scalar], args: Sequence[Sql], engine: Engine) -> list[Ast]:
    """Conditions that hold if none of the expressions fails."""
    failures = (spell.error(expr, args, engine) for expr in exprs)
    return [s.is_null(failure) for failure in failures if failure is not None]


@dataclass
class Plan:
    """An MFP with simple expressions written in place and shared ones in layers.

    Attributes:
        arity: number of input columns.
        types: of the input's columns, then of the layers' columns.
        layers: expressions computed below, in order; the i-th is column ``arity + i``.
        predicates: over input and layers.
        outputs: over input and layers.
    """

    arity: int
    types: list[ColumnType]
    layers: list[Scalar] = field(default_factory=list)
    predicates: list[Scalar] = field(default_factory=list)
    outputs: list[Scalar] = field(default_factory=list)


def plan(mfp: MapFilterProject, columns: Sequence[ColumnType]) -> Plan:
    """Plan an MFP: drop what nothing reads; write in place what is read once, or is just a column or a literal."""
    arity = mfp.input_arity
    uses: Counter[int] = Counter(c for c in mfp.projection if c >= arity)
    demanded = [expr for _, expr in mfp.predicates]
    for expr in demanded:
        uses.update(_column_uses(expr, arity))
    for index in range(len(mfp.expressions) - 1, -1, -1):
        if uses[arity + index]:
            uses.update(_column_uses(mfp.expressions[index], arity))
    made = Plan(arity, list(columns))
    current: list[Scalar] = [Column(i) for i in range(arity)]
    for index, expr in enumerate(mfp.expressions):
        inlined = substitute(expr, current)
        check(inlined)
        if isinstance(inlined, Column | Literal) or uses[arity + index] <= 1:
            current.append(inlined)
            continue
        made.types.append(ColumnType(scalar_type(inlined, made.types)))
        made.layers.append(inlined)
        current.append(Column(len(made.types) - 1))
    made.predicates = [substitute(expr, current) for _, expr in mfp.predicates]
    made.outputs = [current[c] for c in mfp.projection]
    for predicate in made.predicates:
        check(predicate)
    return made


def _column_uses(expr: Scalar, arity: int) -> Iterator[int]:
    for node in walk(expr):
        if isinstance(node, Column) and node.index >= arity:
            yield node.index


def output_types(mfp: MapFilterProject, columns: Sequence[ColumnType]) -> tuple[ColumnType, ...]:
    """The types of an MFP's output columns, over input columns of these types."""
    types = list(columns)
    for expr in mfp.expressions:
        if isinstance(expr, Column):
            types.append(types[expr.index])
        else:
            types.append(ColumnType(scalar_type(expr, types)))
    return tuple(types[c] for c in mfp.projection)


def can_fail(mfp: MapFilterProject, columns: Sequence[ColumnType]) -> bool:
    """Whether the evaluation of some row can fail."""
    made = plan(mfp, columns)
    return any(
        may_fail(expr, made.types) for expr in (*made.layers, *made.predicates, *made.outputs)
    )


def mapped(
    mfp: MapFilterProject,
    columns: Sequence[ColumnType],
    source: str | exp.Expression,
    engine: Engine,
    *,
    carry: Sequence[str],
    errors_in: bool = False,
    errors_out: bool = True,
    inputs: Sequence[Sql] | None = None,
) -> tuple[exp.Select, bool]:
    """The ``SELECT`` of an MFP over `source`.

    Args:
        mfp: the MFP.
        columns: types of the source's columns.
        source: the relation's name, or a table or subquery.
        engine: the engine that runs it.
        carry: further columns to return unchanged (mz_time, mz_diff, …).
        errors_in: whether the source has a column mz_error, to be returned too.
        errors_out: whether rows that fail are wanted; they are dropped if not.
        inputs: the source's columns as ASTs without table alias; c0 … if not given.

    Returns:
        The query, with columns c0 …, mz_error (if the second result says so), and those of `carry`.
    """
    made = plan(mfp, columns)
    given = list(inputs) if inputs is not None else None
    args = given or [Sql(col(f"c{i}"), t.type) for i, t in enumerate(columns)]
    args += [Sql(col(f"m_{i}"), t.type) for i, t in enumerate(made.types[made.arity :])]
    everything = [*made.layers, *made.predicates, *made.outputs]
    fails = any(may_fail(item, made.types) for item in dict.fromkeys(everything))
    risky = _risky(made)
    safe = [p for p in made.predicates if p not in risky]
    carried = [*carry, *([ERROR] if errors_in else [])]
    args = spell.Known(args)
    source = _layered(made, args, source, engine, carried)
    where = [_passes(p, args, engine, errors_in=errors_in) for p in safe]
    if not fails:
        found = [spell.value(e, args, engine) for e in made.outputs]
        if errors_in:
            # Every column of an error row must be NULL: with a constant in one it would differ from the same error's
            # row elsewhere, and not cancel.
            nothing = [null_of(t, engine) for t in output_types(mfp, columns)]
            found = [
                value
                if isinstance(e, Column) and e.index < made.arity
                else s.case((s.is_null(col(ERROR)), value), otherwise=null)
                for e, value, null in zip(made.outputs, found, nothing, strict=True)
            ]
        items: list[Ast] = [named(value, f"c{i}") for i, value in enumerate(found)]
        items += [col(ERROR)] if errors_in else []
        items += [col(name) for name in carry]
        return select(items, source, where=where), errors_in
    status = _status(made, risky, args, engine, errors_in=errors_in)
    values = [spell.value(e, args, engine) for e in made.outputs]
    inner: list[Ast] = [named(v, f"c{i}") for i, v in enumerate(values)]
    inner += [named(status, ERROR), *(col(name) for name in carry)]
    below = subquery(select(inner, source, where=where), "e")
    if not errors_out and not errors_in:
        items = [col(f"c{i}") for i in range(len(values))]
        items += [col(name) for name in carry]
        return select(items, below, where=[s.is_null(col(ERROR))]), False
    kept = s.or_(s.is_null(col(ERROR)), s.neq(col(ERROR), s.text("")))
    types = output_types(mfp, columns)
    items = [
        named(s.case((s.is_null(col(ERROR)), col(f"c{i}")), otherwise=null_of(t, engine)), f"c{i}")
        for i, t in enumerate(types)
    ]
    items += [col(ERROR), *(col(name) for name in carry)]
    # The filter only stands where a row can be dropped, because Spark pushes it down and writes the whole status
    # expression out again.
    return select(items, below, where=[kept] if risky else ()), True


def _risky(made: Plan) -> list[Scalar]:
    """The predicates that can fail, or that read a layer that can."""
    failing: set[int] = set()

    def fails(expr: Scalar) -> bool:
        return bool(support(expr) & failing) or may_fail(expr, made.types)

    for position, layer in enumerate(made.layers, start=made.arity):
        if fails(layer):
            failing.add(position)
    return [p for p in made.predicates if fails(p)]


def _passes(predicate: Scalar, args: Sequence[Sql], engine: Engine, *, errors_in: bool) -> Ast:
    asked = spell.value(predicate, args, engine)
    return s.or_(asked, s.is_not_null(col(ERROR))) if errors_in else asked


def _status(
    made: Plan, risky: Sequence[Scalar], args: Sequence[Sql], engine: Engine, *, errors_in: bool
) -> Ast:
    """NULL for a good row, the empty text for one that a predicate drops, else the error message."""
    terms: list[Ast] = [col(ERROR)] if errors_in else []
    for item in dict.fromkeys((*made.layers, *risky, *made.outputs)):
        failure = spell.error(item, args, engine)
        if failure is not None:
            terms.append(failure)
        if item in risky:
            held = s.coalesce(spell.value(item, args, engine), s.boolean(value=False))
            terms.append(s.case((s.not_(held), s.text(""))))
    return s.coalesce(*terms) if terms else s.string(s.null())


def _layered(
    made: Plan,
    args: spell.Known,
    source: str | exp.Expression,
    engine: Engine,
    carry: Sequence[str],
) -> str | exp.Expression:
    """The source with a subquery for each level of shared expressions; `args` then knows which parts are columns."""
    done = 0
    while done < len(made.layers):
        ready = done
        limit = made.arity + done
        while ready < len(made.layers) and max(support(made.layers[ready]), default=-1) < limit:
            ready += 1
        source = _apart(made, made.layers[done:ready], done, args, source, engine, carry)
        items = _below(made, done, args, carry)
        items += [
            named(spell.value(made.layers[i], args, engine), f"m_{i}") for i in range(done, ready)
        ]
        source = subquery(select(items, source), f"l{done}")
        done = ready
    above = (*made.layers, *made.predicates, *made.outputs)
    return _apart(made, above, done, args, source, engine, carry)


def _apart(
    made: Plan,
    above: Sequence[Scalar],
    done: int,
    args: spell.Known,
    source: str | exp.Expression,
    engine: Engine,
    carry: Sequence[str],
) -> str | exp.Expression:
    """The source with a subquery for each level of parts that would make the expressions above it too large."""
    waiting = sharing.parts(above, made.types, args.values)
    while waiting:
        inner = set(waiting)
        level = [p for p in waiting if not any(n in inner for n in walk(p) if n is not p)]
        items = _below(made, done, args, carry)
        found: list[tuple[Scalar, Sql, Ast | None]] = []
        for number, part in enumerate(level, start=len(args.values)):
            items.append(named(spell.value(part, args, engine), f"p_{number}"))
            held = Sql(col(f"p_{number}"), scalar_type(part, made.types))
            failure = spell.error(part, args, engine)
            if failure is not None:
                items.append(named(failure, f"q_{number}"))
                failure = col(f"q_{number}")
            found.append((part, held, failure))
        source = subquery(select(items, source), f"p{len(args.values)}")
        for part, held, failure in found:
            args.values[part], args.errors[part] = held, failure
        waiting = [part for part in waiting if part not in args.values]
    return source


def _below(made: Plan, done: int, args: spell.Known, carry: Sequence[str]) -> list[Ast]:
    """The columns that something above the first `done` layers reads."""
    needed = _needed(made, done)
    limit = made.arity + done
    names = dict.fromkeys(arg.ast.name for i, arg in enumerate(args[:limit]) if i in needed)
    names |= dict.fromkeys(held.ast.name for held in args.values.values())
    names |= dict.fromkeys(failure.name for failure in args.errors.values() if failure is not None)
    return [col(name) for name in (*names, *(name for name in carry if name not in names))]


def _needed(made: Plan, done: int) -> frozenset[int]:
    """The columns that something above layer `done` reads; a layer's failure is asked for above all of them."""
    failing = (expr for expr in made.layers[:done] if may_fail(expr, made.types))
    later = (*made.layers[done:], *made.predicates, *made.outputs, *failing)
    return frozenset[int]().union(*(support(expr) for expr in later))
