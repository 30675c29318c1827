"""Chooses the engine of a hydration or a step, and says why.

Promise: if `step_engine` names an engine, that one is used. With ``auto`` the size decides: a hydration whose inputs
have few stored bytes, and a step that touches what fits in this process, run in DuckDB, which is done before Spark
has compiled a plan; larger ones run on Spark. What one engine cannot do for reasons of its own (no memory, no disk
space, a stopped session) is tried on the other one, in turns, until it succeeds.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import duckdb
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from mzsql.compute.dependencies import ComputeSettings
from mzsql.expr.engines import no_memory
from mzsql.expr.functions.table import Engine
from mzsql.repr.errors import EnvironmentRefused

_NAMES = {Engine.DUCKDB: "DuckDB", Engine.SPARK: "Spark"}


@dataclass
class Refusals:
    """Which engine failed for one dataflow since its last success, and why."""

    _why: dict[Engine, str] = field(default_factory=dict)

    def note(self, error: BaseException) -> None:
        """Record a failed attempt, if it was the engine that failed."""
        for engine in Engine:
            if is_engines_own(engine, error):
                # Only the last failure is kept, so if both engines fail they are tried in turns.
                self._why = {engine: (str(error) or type(error).__name__).splitlines()[0]}

    def clear(self) -> None:
        """Record a success."""
        self._why = {}

    def instead_of(self, engine: Engine) -> str | None:
        """Why an engine is not to be used now, for a person; None if it may be."""
        why = self._why.get(engine)
        return None if why is None else f"{_NAMES[engine]} failed: {why}"


def for_hydration(settings: ComputeSettings, size: int, refusals: Refusals) -> tuple[Engine, str]:
    """Choose the engine of a hydration; return it and the reason, for a person.

    Args:
        settings: the replica's.
        size: stored bytes of all inputs.
        refusals: earlier failures.
    """
    asked = settings.engine
    if asked != "auto":
        return Engine(asked), f"step_engine is {asked}"
    most = settings.hydrate_here_bytes
    if size <= most:
        chosen, why = Engine.DUCKDB, f"inputs of {size} bytes, which is at most {most}"
    else:
        chosen, why = Engine.SPARK, f"inputs of {size} bytes, which is more than {most}"
    refused = refusals.instead_of(chosen)
    return (chosen, why) if refused is None else (other_than(chosen), refused)


def other_than(engine: Engine) -> Engine:
    """The other engine."""
    return Engine.SPARK if engine is Engine.DUCKDB else Engine.DUCKDB


def is_engines_own(engine: Engine, error: BaseException) -> bool:
    """Whether an error is the engine's own failure, so that the other engine may succeed."""
    if engine is Engine.DUCKDB:
        # An IOException means that the disk is full or gone.
        return no_memory(error) or isinstance(error, duckdb.IOException)
    return isinstance(error, PySparkException | Py4JError | EnvironmentRefused | ConnectionError)
