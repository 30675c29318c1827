"""Which engine runs a hydration or a step, and why that one.

Promise: what `step_engine` says, where it names one. With ``auto`` what is read decides: a hydration whose inputs have few stored bytes,
and a step that touches what fits in process, is run by DuckDB, which has done it by the time that Spark has compiled its first plan; past
that Spark runs it. What one engine could not do for its own reasons (no memory, no space, a session that was stopped) the other one is
tried for, until something works.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import duckdb
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from mzsql.compute.protocols import ComputeSettings
from mzsql.expr.engines import no_memory
from mzsql.expr.functions.table import Engine
from mzsql.repr.errors import EnvironmentRefused

_NAMES = {Engine.DUCKDB: "DuckDB", Engine.SPARK: "Spark"}


@dataclass
class Refusals:
    """Why engines could not do what one dataflow needed, since something worked last."""

    _why: dict[Engine, str] = field(default_factory=dict)

    def note(self, error: BaseException) -> None:
        """An attempt has failed; remembered where it is an engine that failed."""
        for engine in Engine:
            if is_engines_own(engine, error):
                # When both have failed, both are tried again in turns.
                self._why = {engine: (str(error) or type(error).__name__).splitlines()[0]}

    def clear(self) -> None:
        """Something worked."""
        self._why = {}

    def instead_of(self, engine: Engine) -> str | None:
        """Why an engine is not to be tried now."""
        why = self._why.get(engine)
        return None if why is None else f"{_NAMES[engine]} failed: {why}"


def for_hydration(settings: ComputeSettings, size: int, refusals: Refusals) -> tuple[Engine, str]:
    """The engine of a hydration, and why, for a person.

    Args:
        settings: what the replica was told.
        size: the stored bytes of all inputs.
        refusals: what could not be done before.
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
    """The engine that is tried where one could not do it."""
    return Engine.SPARK if engine is Engine.DUCKDB else Engine.DUCKDB


def is_engines_own(engine: Engine, error: BaseException) -> bool:
    """Whether an engine failed for reasons of its own, so that another one may do what it could not."""
    if engine is Engine.DUCKDB:
        # An IOException is a disk that is full or gone.
        return no_memory(error) or isinstance(error, duckdb.IOException)
    return isinstance(error, PySparkException | Py4JError | EnvironmentRefused | ConnectionError)
