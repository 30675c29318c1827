"""In-process evaluation of expressions over a few rows.

Promise: the results are those of the DuckDB spelling, which the differential tests compare with Spark's and PostgreSQL's. Two exceptions:
numerics in constants have up to 39 digits (`mzsql.expr.numeric_folding`), and arithmetic on two integers needs no engine
(`mzsql.expr.python_folding`). A failed evaluation yields an `EvalError` with its message. Thread-safe. Meant for constant folding,
not for data: rows are passed as datums.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal

import duckdb
import msgspec
import pyarrow as pa
from sqlglot import expressions as exp

from mzsql.expr import functions, numeric_folding, python_folding, spell
from mzsql.expr.decimal_functions import total
from mzsql.expr.engines import LaterConnection, to_sql
from mzsql.expr.folded_windows import evaluated
from mzsql.expr.functions import sql as s
from mzsql.expr.functions.aggregate import windows
from mzsql.expr.functions.declare import BOUNDS, INTEGERS
from mzsql.expr.functions.rules import rules_error
from mzsql.expr.functions.sql import Ast
from mzsql.expr.functions.table import Engine, Sql
from mzsql.expr.mfp import MapFilterProject
from mzsql.expr.order import sort_key
from mzsql.expr.scalar import (
    AggregateExpr,
    Call,
    Column,
    If,
    Literal,
    LiteralError,
    Scalar,
    scalar_type,
    substitute,
    support,
    transform,
    walk,
)
from mzsql.persist import duck
from mzsql.repr.datum import Datum, Diff, Row
from mzsql.repr.errors import InternalError, Unsupported
from mzsql.repr.interrupt import check_for_interrupts, on_interrupt
from mzsql.repr.types import (
    BIGINT,
    BOOLEAN,
    ColumnType,
    SqlType,
    arrow_schema,
    arrow_type,
    type_name,
)
from mzsql.repr.values import arrow_value, datums

#: The size of the cache of constants' values.
_CACHED = 10_000
#: The longest text that is cached.
_KEPT = 100_000
#: The total number of characters that folded constants may have; larger ones are left to the engine that runs the plan.
FOLDED = 4_000_000
#: The weight of a container's element, in characters of a text.
_CONTAINED = 100
#: The memory limit of the engine.
_MEMORY = "1GB"
#: Up to this many rows, an expression that needs both decimals and an engine is evaluated row by row.
_ASKED_ROWS = 500
#: The table functions that unnest a container.
_UNNESTING = frozenset({"unnest_array", "unnest_list"})


class EvalError(msgspec.Struct, frozen=True):
    """A failed evaluation, with the message for the user."""

    message: str


class Evaluator:
    """Evaluates expressions on an in-process DuckDB connection; threads may share one.

    Args:
        exact_numerics: whether numerics in constants are computed in Python's decimals; otherwise DuckDB computes everything.
    """

    def __init__(self, *, exact_numerics: bool = True) -> None:
        self._engine = LaterConnection({"threads": "1", "memory_limit": _MEMORY})
        self._lock = threading.Lock()
        self._exact = exact_numerics
        self._constants: dict[Scalar, Datum | EvalError] = {}

    def close(self) -> None:
        """Close the connection. Idempotent."""
        with self._lock:
            self._engine.close()

    @property
    def _connection(self) -> duckdb.DuckDBPyConnection:
        """The engine; the lock is held."""
        return self._engine.opened()

    def evaluate(
        self, exprs: Sequence[Scalar], row: Row = (), columns: Sequence[ColumnType] = ()
    ) -> tuple[Datum | EvalError, ...]:
        """The value of each expression over one row.

        Args:
            exprs: the expressions.
            row: the row; empty for constant expressions.
            columns: the row's types.
        """
        if row:
            exprs = [_over(expr, row, columns) for expr in exprs]
        missing = [expr for expr in dict.fromkeys(exprs) if expr not in self._constants]
        if missing:
            found = dict(zip(missing, self._constant_values(missing), strict=True))
            if len(self._constants) > _CACHED:
                self._constants.clear()
            self._constants.update(
                (e, v) for e, v in found.items() if not isinstance(v, str) or len(v) <= _KEPT
            )
            return tuple(found.get(expr, self._constants.get(expr)) for expr in exprs)
        return tuple(self._constants[expr] for expr in exprs)

    def _constant_values(self, exprs: Sequence[Scalar]) -> list[Datum | EvalError]:
        found: dict[Scalar, Datum | EvalError] = {}
        if self._exact:
            for expr in exprs:
                if isinstance(expr, Literal | LiteralError) or numeric_folding.concerns(expr):
                    found[expr] = self._reduced(expr)
                elif isinstance(expr, Call) and (known := python_folding.value(expr)) is not None:
                    found[expr] = _outcome(known)
                elif (refused := _refused(expr)) is not None:
                    found[expr] = EvalError(refused)
        others = [expr for expr in exprs if expr not in found]
        if others:
            (values,) = self._select(others, [], None)
            found.update(zip(others, values, strict=True))
        return [found[expr] for expr in exprs]

    def _reduced(self, expr: Scalar) -> Datum | EvalError:
        return _outcome(numeric_folding.reduced(expr, self._ask))

    def _ask(self, expr: Scalar) -> Literal | LiteralError:
        """The value of a constant expression that an engine computes."""
        (found,) = self.evaluate([expr])
        typ = scalar_type(expr, ())
        if isinstance(found, EvalError):
            return LiteralError(found.message, typ)
        return Literal(found, typ)

    def _folded(
        self, exprs: Sequence[Scalar], rows: Sequence[Row], columns: Sequence[ColumnType]
    ) -> list[tuple[Datum | EvalError, ...]]:
        """Like `evaluate_rows`, for rows of constants: their numerics keep all digits."""
        if not self._exact or not rows or not exprs:
            return self.evaluate_rows(exprs, rows, columns)
        unfit = {
            i
            for i, column in enumerate(columns)
            if any(numeric_folding.refusal(row[i], column.type) is not None for row in rows)
        }
        engine = [i for i, expr in enumerate(exprs) if _for_engine(expr, len(rows), unfit)]
        found: dict[int, Sequence[Datum | EvalError]] = {}
        if engine:
            given = [tuple(None if i in unfit else v for i, v in enumerate(r)) for r in rows]
            answers = self._by_engine([exprs[i] for i in engine], given, columns)
            found.update(zip(engine, zip(*answers, strict=True), strict=True))
        for i, expr in enumerate(exprs):
            if i not in found:
                found[i] = [self._reduced(_over(expr, row, columns)) for row in rows]
        return list(zip(*(found[i] for i in range(len(exprs))), strict=True))

    def _by_engine(
        self, exprs: Sequence[Scalar], rows: Sequence[Row], columns: Sequence[ColumnType]
    ) -> list[tuple[Datum | EvalError, ...]]:
        """Like `evaluate_rows`; row by row with constant arguments where a function takes only constants, which these are."""
        try:
            return self.evaluate_rows(exprs, rows, columns)
        except Unsupported:
            if len(rows) > _ASKED_ROWS:
                raise
        return [
            self.evaluate([transform(_over(e, row, columns), self._known) for e in exprs])
            for row in rows
        ]

    def _known(self, expr: Scalar) -> Scalar:
        """A constant call or branch as a literal; any other expression unchanged."""
        if not isinstance(expr, Call | If):
            return expr
        (found,) = self.evaluate([expr])
        typ = scalar_type(expr, ())
        return (
            LiteralError(found.message, typ)
            if isinstance(found, EvalError)
            else Literal(found, typ)
        )

    def evaluate_rows(
        self, exprs: Sequence[Scalar], rows: Sequence[Row], columns: Sequence[ColumnType]
    ) -> list[tuple[Datum | EvalError, ...]]:
        """For each row, the values of the expressions.

        Args:
            exprs: the expressions.
            rows: the rows.
            columns: the rows' types.
        """
        if not rows:
            return []
        if not columns or not exprs:
            return [self.evaluate(exprs) for _ in rows]
        return self._select(exprs, columns, rows)

    def evaluate_mfp(
        self,
        mfp: MapFilterProject,
        rows: Sequence[tuple[Row, Diff]],
        columns: Sequence[ColumnType],
    ) -> list[tuple[Row, Diff]] | EvalError:
        """The rows that an MFP makes of ``rows``, or the first failure.

        Args:
            mfp: the work.
            rows: the rows with their multiplicities.
            columns: the rows' types.

        Raises:
            TooLarge: a computed value is too large to be folded.
        """
        values: list[tuple[Datum, ...]] = [row for row, _ in rows]
        types = list(columns)
        predicates = sorted(mfp.predicates, key=lambda entry: entry[0])
        alive = list(range(len(rows)))
        for position in range(mfp.input_arity, mfp.input_arity + len(mfp.expressions) + 1):
            while predicates and predicates[0][0] <= position:
                _, predicate = predicates.pop(0)
                kept = self._folded([predicate], [values[i] for i in alive], types)
                failed = _first_error(kept)
                if failed is not None:
                    return failed
                alive = [i for i, (truth,) in zip(alive, kept, strict=True) if truth is True]
            if position == mfp.input_arity + len(mfp.expressions):
                break
            expr = mfp.expressions[position - mfp.input_arity]
            found = self._folded([expr], [values[i] for i in alive], types)
            failed = _first_error(found)
            if failed is not None:
                return failed
            for i, (datum,) in zip(alive, found, strict=True):
                assert not isinstance(datum, EvalError)
                values[i] = (*values[i], datum)
            typ = scalar_type(expr, types)
            if not is_foldable((values[i][-1], typ) for i in alive):
                raise TooLarge
            types.append(ColumnType(typ))
        return [(tuple(values[i][c] for c in mfp.projection), rows[i][1]) for i in alive]

    def table_rows(
        self, func: str, exprs: Sequence[Scalar], row: Row, columns: Sequence[ColumnType]
    ) -> list[Row] | EvalError:
        """The rows that a single-column table function yields for one row, or its failure.

        Args:
            func: the function's key.
            exprs: its arguments.
            row: the row.
            columns: the row's types.
        """
        if func in _UNNESTING:
            (datum,) = self.evaluate(exprs, row, columns)
            typ = scalar_type(exprs[0], columns)
            return datum if isinstance(datum, EvalError) else _elements(datum, typ)
        table = functions.table_func(func)
        given = self.evaluate(exprs, row, columns)
        args = []
        for datum, expr in zip(given, exprs, strict=True):
            if isinstance(datum, EvalError):
                return datum
            typ = scalar_type(expr, columns)
            args.append(Sql(spell.literal(datum, typ, Engine.DUCKDB), typ))
        element = args[0].typ.element or table.output.columns[0].type
        failure = rules_error(table.errors, args, element, Engine.DUCKDB, strict=True)
        if failure is not None:
            message = self._query([(failure, "e0")], None).column(0)[0].as_py()
            if message is not None:
                return EvalError(message)
        many = SqlType("array", element=element)
        rows = s.cast(table.rows(Engine.DUCKDB, args, element), many, Engine.DUCKDB)
        result = self._query([(rows, "v0")], None).column(0).combine_chunks()
        return [(datum,) for datum in datums(result.flatten(), element)]

    def aggregate_rows(
        self,
        group_key: Sequence[Scalar],
        aggregates: Sequence[AggregateExpr],
        rows: Sequence[tuple[Row, Diff]],
        columns: Sequence[ColumnType],
    ) -> list[Row] | EvalError:
        """The rows of a Reduce over constant rows, or its failure: the values of the key, then the aggregates; no group has no row.

        Args:
            group_key: the key.
            aggregates: the aggregates.
            rows: the rows with their multiplicities.
            columns: the rows' types.
        """
        exprs = [*group_key, *(a.expr for a in aggregates)]
        found = self._folded(exprs, [row for row, _ in rows], columns)
        failed = _first_error(found)
        if failed is not None:
            return failed
        groups: dict[tuple[Datum, ...], list[tuple[tuple[Datum, ...], Diff]]] = {}
        for values, (_, diff) in zip(found, rows, strict=True):
            datums_only = tuple(v for v in values if not isinstance(v, EvalError))
            key = datums_only[: len(group_key)]
            groups.setdefault(key, []).append((datums_only[len(group_key) :], diff))
        output: list[Row] = []
        for key, members in groups.items():
            results: list[Datum] = []
            for i, aggregate in enumerate(aggregates):
                typ = scalar_type(aggregate.expr, columns)
                datum = self._aggregate(aggregate, typ, [(v[i], d) for v, d in members])
                if isinstance(datum, EvalError):
                    return datum
                results.append(datum)
            output.append((*key, *results))
        return output

    def _aggregate(
        self, aggregate: AggregateExpr, typ: SqlType, values: Sequence[tuple[Datum, Diff]]
    ) -> Datum | EvalError:
        func = functions.aggregate(aggregate.func)
        if aggregate.distinct:
            counts: dict[Datum, Diff] = {}
            for value, diff in values:
                counts[value] = counts.get(value, 0) + diff
            values = [(value, 1) for value, count in counts.items() if count > 0]
        window = windows.parse(aggregate.func)
        if window is not None:
            return self._windowed(window, aggregate, typ, values)
        if self._exact:
            known = _simple_aggregate(aggregate, typ, values)
            if known is not None:
                return known.value if isinstance(known, _Known) else known
            refusals = (numeric_folding.refusal(value, typ) for value, _ in values)
            refused = next((message for message in refusals if message is not None), None)
            if refused is not None:
                return EvalError(refused)
        source, times = Sql(_column("c0"), typ), _column("d0")
        if func.accumulate is None:
            assert func.value is not None
            expanded = [value for value, diff in values for _ in range(max(diff, 0))]
            table = _table([typ], [(value,) for value in expanded], ["c0"])
            ast = spell.typed(
                func.value(Engine.DUCKDB, [source], aggregate.typ), aggregate.typ, Engine.DUCKDB
            )
            return datums(self._query([(ast, "v0")], table).column(0), aggregate.typ)[0]
        table = _table([typ, BIGINT], values, ["c0", "d0"])
        summands = func.accumulate(Engine.DUCKDB, source, times)
        names = func.accumulator_types(typ)
        sums = [
            (s.cast(s.call("SUM", summand), kind, Engine.DUCKDB), f"a{i}")
            for i, (summand, (_, kind)) in enumerate(zip(summands, names, strict=True))
        ]
        partial = self._query(sums, table)
        args = [Sql(_column(f"a{i}"), kind) for i, (_, kind) in enumerate(names)]
        assert func.finish is not None
        failure = rules_error(func.errors, args, aggregate.typ, Engine.DUCKDB, strict=False)
        finished = spell.typed(
            func.finish(Engine.DUCKDB, args, aggregate.typ), aggregate.typ, Engine.DUCKDB
        )
        result = self._query([(finished, "v0"), (_message(failure), "e0")], partial)
        message = result.column(1)[0].as_py()
        if message is not None:
            return EvalError(message)
        return datums(result.column(0), aggregate.typ)[0]

    def _windowed(
        self,
        window: windows.WindowFunc,
        aggregate: AggregateExpr,
        typ: SqlType,
        values: Sequence[tuple[Datum, Diff]],
    ) -> Datum | EvalError:
        """The result of a window function over one partition: its rows, each with the function's value."""
        element = aggregate.typ.element
        assert element is not None
        failures: list[EvalError] = []

        def whole(
            one: windows.WindowFunc, given: SqlType, frame: Sequence[Datum], result: SqlType
        ) -> Datum:
            inner = msgspec.structs.replace(aggregate, func=one.func, typ=result)
            found = self._aggregate(inner, given, [(v, 1) for v in frame])
            if not isinstance(found, EvalError):
                return found
            failures.append(found)
            return None

        rows = [value for value, diff in values for _ in range(max(diff, 0))]
        listed = evaluated(window, typ, rows, element.fields[0][1].type, whole)
        return failures[0] if failures else listed

    def _select(
        self,
        exprs: Sequence[Scalar],
        columns: Sequence[ColumnType],
        rows: Sequence[Row] | None,
    ) -> list[tuple[Datum | EvalError, ...]]:
        table = None if rows is None else _table([c.type for c in columns], rows, None)
        sources = [Sql(_column(f"c{i}"), c.type) for i, c in enumerate(columns)]
        items: list[tuple[Ast, str]] = []
        types = [scalar_type(expr, columns) for expr in exprs]
        for i, (expr, typ) in enumerate(zip(exprs, types, strict=True)):
            ast = spell.value(expr, sources, Engine.DUCKDB)
            items.append((spell.typed(ast, typ, Engine.DUCKDB), f"v{i}"))
            items.append((_message(spell.error(expr, sources, Engine.DUCKDB)), f"e{i}"))
        result = self._query(items, table)
        answers: list[list[Datum | EvalError]] = []
        for i, typ in enumerate(types):
            values = datums(_typed(result.column(2 * i), typ), typ)
            messages = result.column(2 * i + 1).to_pylist()
            answers.append(
                [
                    value if message is None else EvalError(message)
                    for value, message in zip(values, messages, strict=True)
                ]
            )
        return list(zip(*answers, strict=True))

    def _query(self, items: Sequence[tuple[Ast, str]], table: pa.Table | None) -> pa.Table:
        query = exp.Select(
            expressions=[
                exp.Alias(this=ast, alias=exp.to_identifier(name, quoted=True))
                for ast, name in items
            ]
        )
        if table is not None:
            query.set("from_", exp.From(this=exp.Table(this=exp.to_identifier("mz_rows"))))
        text = to_sql(query, Engine.DUCKDB)
        with self._lock, self._registered(table):
            try:
                with on_interrupt(self._connection.interrupt):
                    return duck.table_of(self._connection, text)
            except duckdb.InterruptException:
                check_for_interrupts()
                raise

    @contextmanager
    def _registered(self, table: pa.Table | None) -> Iterator[None]:
        """Within the block, ``mz_rows`` names these rows.

        Never inside `on_interrupt`: an interrupt would leave the name registered.
        """
        if table is None:
            yield
            return
        self._connection.register("mz_rows", table)
        try:
            yield
        finally:
            self._connection.unregister("mz_rows")


class TooLarge(Exception):
    """Constants are too large to be folded."""


def is_foldable(values: Iterable[tuple[Datum | EvalError, SqlType]]) -> bool:
    """Whether constants are small enough to stand in a plan; an element of a container weighs more than a character."""
    sizes = (
        len(value) * (_CONTAINED if typ.element is not None or typ.fields else 1)
        for value, typ in values
        if isinstance(value, str)
    )
    return sum(sizes) <= FOLDED


def _column(name: str) -> Ast:
    return exp.column(exp.to_identifier(name, quoted=True))


def _message(failure: Ast | None) -> Ast:
    text = exp.DataType(this=exp.DType.TEXT)
    return exp.Cast(this=exp.Null() if failure is None else failure, to=text)


def _table(
    types: Sequence[SqlType], rows: Sequence[Sequence[Datum]], names: Sequence[str] | None
) -> pa.Table:
    schema = arrow_schema([ColumnType(typ) for typ in types], names)
    arrays = [
        pa.array([arrow_value(row[i], typ) for row in rows], arrow_type(typ))
        for i, typ in enumerate(types)
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _typed(column: pa.ChunkedArray, typ: SqlType) -> pa.ChunkedArray:
    wanted = arrow_type(typ)
    if column.type == wanted:
        return column
    if typ == BOOLEAN and pa.types.is_null(column.type):
        return column.cast(wanted)
    if pa.types.is_struct(wanted) or pa.types.is_list(wanted):
        return column
    if pa.types.is_timestamp(wanted) and pa.types.is_timestamp(column.type):
        return column.cast(wanted)
    raise InternalError(f"an expression of type {typ} came out as {column.type}")


def _outcome(known: Literal | LiteralError) -> Datum | EvalError:
    return EvalError(known.message) if isinstance(known, LiteralError) else known.value


def _first_error(rows: Sequence[Sequence[Datum | EvalError]]) -> EvalError | None:
    return next((v for row in rows for v in row if isinstance(v, EvalError)), None)


def _over(expr: Scalar, row: Row, columns: Sequence[ColumnType]) -> Scalar:
    """The expression with the row's values substituted for its columns."""
    literals = [Literal(v, c.type) for v, c in zip(row, columns, strict=True)]
    return substitute(expr, literals)


def _for_engine(expr: Scalar, rows: int, unfit: set[int]) -> bool:
    """Whether an engine evaluates the expression over ``rows`` rows of constants.

    Columns in ``unfit`` hold values that no engine can.
    """
    if isinstance(expr, Column | Literal) or not unfit.isdisjoint(support(expr)):
        return False
    return not numeric_folding.concerns(expr) or (
        rows > _ASKED_ROWS and not numeric_folding.is_closed(expr)
    )


def _refused(expr: Scalar) -> str | None:
    """Why no engine can compute the expression; None where one can."""
    refusals = (
        numeric_folding.refusal(node.value, node.typ)
        for node in walk(expr)
        if isinstance(node, Literal)
    )
    return next((message for message in refusals if message is not None), None)


def _elements(datum: Datum, typ: SqlType) -> list[Row]:
    """The elements of a list, or of an array with all its dimensions."""
    if datum is None:
        return []
    items: list[Datum] = json.loads(str(datum))
    if typ.kind == "array" and typ.element is not None and typ.element.kind == "array":
        return [row for item in items for row in _elements(item, typ.element)]
    return [(item,) for item in items]


class _Known(msgspec.Struct, frozen=True):
    """A known value, possibly NULL."""

    value: Datum


def _simple_aggregate(
    aggregate: AggregateExpr, typ: SqlType, values: Sequence[tuple[Datum, Diff]]
) -> _Known | EvalError | None:
    """The value of a count, a sum of integers or numerics, or a min or max, with all digits; None for any other aggregate."""
    name, _, kind = aggregate.func.partition("_")
    kept = [(value, diff) for value, diff in values if value is not None]
    if aggregate.func == "count":
        return _Known(sum(diff for _, diff in kept))
    if kind != typ.kind or name not in ("sum", "min", "max"):
        return None
    if not kept:
        return _Known(None)
    if name != "sum":
        key = sort_key(typ)
        return _Known((max if name == "max" else min)((v for v, _ in kept), key=key))
    if kind not in (*INTEGERS, "numeric"):
        return None
    found = total([(Decimal(str(value)), diff) for value, diff in kept])
    if aggregate.typ.kind == "numeric":
        return _Known(found)
    low, high = BOUNDS[aggregate.typ.kind]
    if not low <= int(found) <= high:
        return EvalError(f'"{found}" {type_name(aggregate.typ)} out of range')
    return _Known(int(found))
