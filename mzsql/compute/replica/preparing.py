"""Prepares the first steps of a dataflow: renders, writes and plans their statement before anything changes.

Promise: after `prepare_steps` an in-process step whose updates have one time neither renders nor plans anything, and
neither do its lookups nor the conditions on its deltas, whichever inputs have updates. Nothing depends on it: a step
that comes earlier makes what it needs. It is meant for a thread that nobody waits for.

Trade-off: it takes a tenth to half a second for a dataflow whose inputs may never change, and the plan takes memory
(`mzsql.compute.engines.plans` keeps the most recently used ones), so only so many dataflows are prepared. Steps over
many times are not: their text is made when the first of them comes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sqlglot import expressions as exp

from mzsql.compute.engines.driver import Driver
from mzsql.compute.replica.dataflow import Dataflow
from mzsql.compute.replica.deltas import Deltas
from mzsql.compute.replica.texts import empty_relation
from mzsql.expr.functions.table import Engine
from mzsql.render.rendered import KeySource
from mzsql.render.templates import StepTemplate


def prepare_steps(
    dataflow: Dataflow, driver: Driver, deltas: Deltas, unwanted: Callable[[], bool]
) -> None:
    """Prepare an open dataflow's steps; nothing more once it is `unwanted`.

    Raises:
        duckdb.Error: DuckDB does not plan a statement; steps will run it as written.
    """
    rendered = dataflow.rendered
    template = rendered.template(Engine.DUCKDB, at_once=not rendered.temporal)
    if unwanted() or template.is_long or template.step is None:
        return
    schemas = {name: empty_relation(dataflow, name).schema for name in template.step.reads}
    if not driver.is_planned(template.text):
        driver.plan(template.text, schemas)
    # Each step asks for it, to find out whether a lean text would do.
    _ = template.asked
    for text, relation in _keys(template):
        if unwanted():
            return
        # A source may be an input that only lookups read.
        schema = schemas.get(relation) or empty_relation(dataflow, relation).schema
        driver.plan_simple(text, {relation: schema})
    for source in dataflow.inputs:
        if unwanted():
            return
        deltas.prepare(source, rendered)


def _keys(template: StepTemplate) -> Iterator[tuple[str, str]]:
    """The statements of a template's lookups that compute keys, each with the relation that it reads."""
    for lookup in template.lookups:
        sources = lookup.sources or ()
        arity = min((len(source.exprs) for source in sources), default=0)
        for source in sources if arity else ():
            if computes(source, arity):
                yield source.keys(arity), source.relation


def computes(source: KeySource, arity: int) -> bool:
    """Whether the first `arity` keys are more than columns of the relation."""
    return not all(isinstance(key, exp.Column) for key in source.exprs[:arity])
