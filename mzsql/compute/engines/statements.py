"""Runs rendered statements on Spark, after registering the functions that they call.

Promise: every statement rendered for Spark goes through `run` or `register`, which register what it calls of the
in-process evaluator (`mzsql.expr.evaluator_functions`, for functions that Spark has no spelling of) as Arrow UDFs, each once
for a session.
"""

from __future__ import annotations

import threading
import weakref

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import arrow_udf
from sqlglot import expressions as exp

from mzsql.compute.engines.relations import spark_type
from mzsql.expr.engines import to_sql
from mzsql.expr.evaluator_functions import Evaluation, evaluations, evaluator
from mzsql.expr.functions.table import Engine
from mzsql.repr.types import arrow_type

_lock = threading.Lock()
#: The functions that each session has registered.
_known: weakref.WeakKeyDictionary[SparkSession, set[str]] = weakref.WeakKeyDictionary()


def run(session: SparkSession, statement: exp.Expression) -> DataFrame:
    """The result of a rendered statement, as a frame that is not computed yet."""
    register(session, statement)
    return session.sql(to_sql(statement, Engine.SPARK))


def run_over(session: SparkSession, statement: exp.Expression, **frames: DataFrame) -> DataFrame:
    """As `run`, for a statement that reads frames as relations of these names, and leaves none of them behind."""
    register(session, statement)
    made = statement.copy()
    # Spark puts the frames in by `str.format`.
    for node in list(made.find_all(exp.Identifier, exp.Literal)):
        node.set("this", node.name.replace("{", "{{").replace("}", "}}"))
    for relation in list(made.find_all(exp.Table)):
        if relation.name in frames:
            relation.set("this", exp.Var(this=f"{{{relation.name}}}"))
    # The class's method: a session's own may be mzsql's (`mzsql.spark.register`).
    return type(session).sql(session, to_sql(made, Engine.SPARK), **frames)


def register(session: SparkSession, statement: exp.Expression) -> None:
    """Register what a statement or expression calls."""
    called = evaluations(statement)
    if not called:
        return
    with _lock:
        known = _known.setdefault(session, set())
        for name, evaluation in called.items():
            if name not in known:
                session.udf.register(name, _udf(evaluation))
                known.add(name)


def _udf(evaluation: Evaluation) -> object:
    result = spark_type(arrow_type(evaluation.result))
    return arrow_udf(evaluator(evaluation), result)
