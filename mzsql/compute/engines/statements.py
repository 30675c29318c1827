"""Statements as Spark runs them: with what they call beside Spark's own functions.

Promise: every statement that was rendered for Spark goes through `run`, which makes known to the session what it calls of the in-process
evaluator (`mzsql.expr.evaluated`), each once.
"""

from __future__ import annotations

import threading
import weakref

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import arrow_udf
from sqlglot import expressions as exp

from mzsql.compute.engines.relations import spark_type
from mzsql.expr.engines import to_sql
from mzsql.expr.evaluated import Evaluation, evaluations, evaluator
from mzsql.expr.functions.table import Engine
from mzsql.repr.types import arrow_type

_lock = threading.Lock()
#: What each session knows already.
_known: weakref.WeakKeyDictionary[SparkSession, set[str]] = weakref.WeakKeyDictionary()


def run(session: SparkSession, statement: exp.Expression) -> DataFrame:
    """A rendered statement's result, to be computed."""
    register(session, statement)
    return session.sql(to_sql(statement, Engine.SPARK))


def register(session: SparkSession, statement: exp.Expression) -> None:
    """Make known what a statement, or an expression, calls."""
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
