"""Functions computed by the in-process evaluator everywhere, including in Spark's statements.

Promise: a function not declared portable (`mzsql.expr.functions.portable`) has one definition, its spelling for DuckDB.
A statement for Spark calls an Arrow UDF that runs this very spelling over the batch, so that views, queries, lookups
and folded constants hold the same bits. `call` makes the AST node, `evaluations` finds what a statement calls, and
whoever runs the statement registers it (`compute.engines.statements`). The node carries its `Evaluation`, so a
statement needs no list beside it. Trade-off: the rows of such an expression pass through Python workers as Arrow.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence

import duckdb
import msgspec
import pyarrow as pa
from sqlglot import expressions as exp

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.sql import Ast
from mzsql.expr.functions.table import Sql
from mzsql.expr.nodes import nodes
from mzsql.repr.types import SqlType, arrow_type

#: The key in a node's metadata under which it carries its `Evaluation`.
_META = "mz_evaluation"
#: The column that gives the number of rows of a call without arguments.
_ROWS = "mz_rows"


class Evaluation(msgspec.Struct, frozen=True):
    """An expression of DuckDB's over columns a0, a1, ….

    Attributes:
        name: the UDF's name in a statement; equal for equal expressions.
        sql: the expression's text.
        args: the types of the columns; empty where it reads none.
        result: the type of the result.
    """

    name: str
    sql: str
    args: tuple[SqlType, ...]
    result: SqlType


def parameter(position: int, typ: SqlType) -> Sql:
    """The argument at ``position``, as the called spelling refers to it."""
    return Sql(exp.column(exp.to_identifier(f"a{position}", quoted=True)), typ)


def call(key: str, spelled: str, args: Sequence[Sql], result: SqlType) -> Ast:
    """The AST of a call, in a statement for Spark, of a function spelled for DuckDB.

    Args:
        key: the function's key, part of the UDF's name.
        spelled: DuckDB's text, over `parameter`s.
        args: the arguments.
        result: the type of the result.
    """
    types = tuple(arg.typ for arg in args)
    told = msgspec.json.encode([spelled, [msgspec.to_builtins(typ) for typ in types], result])
    digest = hashlib.sha256(told).hexdigest()[:12]
    name = re.sub(r"[^a-z0-9_]", "_", f"mz_{key.lower()}_{digest}")
    given = [arg.ast.copy() for arg in args] or [s.integer(s.num(0))]
    node = exp.Anonymous(this=name, expressions=given)
    node.meta[_META] = Evaluation(name, spelled, types, result)
    return node


def evaluations(statement: exp.Expression) -> dict[str, Evaluation]:
    """The `Evaluation`s that a statement calls, by name."""
    found: dict[str, Evaluation] = {}
    for node in nodes(statement, exp.Anonymous):
        known = node.meta.get(_META)
        if isinstance(known, Evaluation):
            found[known.name] = known
    return found


def evaluator(evaluation: Evaluation) -> Callable[..., pa.Array]:
    """The Arrow UDF. It is shipped by value, and needs DuckDB and Arrow on the worker, but not mzsql."""
    text = f'SELECT {evaluation.sql} AS "r" FROM "mz_args"'
    names = [f"a{i}" for i in range(len(evaluation.args))] or [_ROWS]
    types = [arrow_type(typ) for typ in evaluation.args] or [pa.int32()]
    result = arrow_type(evaluation.result)
    # Results must keep the order of the arguments.
    settings = (
        "SET autoinstall_known_extensions = false; SET autoload_known_extensions = false; SET TimeZone = 'UTC'; "
        "SET preserve_insertion_order = true; SET threads = 1"
    )

    def evaluate(*columns: pa.Array) -> pa.Array:
        given = pa.Table.from_arrays(
            [column.cast(typ) for column, typ in zip(columns, types, strict=True)], names=names
        )
        # A worker process runs one task at a time, so sharing the connection is safe; opening a database would cost
        # more than most batches.
        connection = duckdb.default_connection().cursor()
        try:
            connection.execute(settings)
            connection.register("mz_args", given)
            answer = connection.execute(text).to_arrow_table().column("r")
        finally:
            connection.close()
        return pa.concat_arrays(
            [pa.nulls(0, result), *(chunk.cast(result) for chunk in answer.chunks)]
        )

    return evaluate
