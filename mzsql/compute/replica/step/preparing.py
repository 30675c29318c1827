"""Prepares the first steps of a dataflow: renders, writes and plans their statement before anything changes.

Promise: after `prepare_steps` an in-process step whose updates have one time neither renders nor plans anything, and
neither do its lookups nor the conditions on its deltas, whichever inputs have updates. Both the full text and a lean
one are planned; the lean one is made for values like those that the inputs and the arrangements have
(`expected_relations`). Nothing depends on it: a step that comes earlier makes what it needs, and one with other values
runs the full text. It is meant for a thread that nobody waits for.

Trade-off: it takes a tenth to half a second for a dataflow whose inputs may never change, and the plan takes memory
(`mzsql.compute.engines.plans` keeps the most recently used ones), so only so many dataflows are prepared. Steps over
several times are where these will come first, as of a dataflow that lets another replica go ahead: their full text is planned, too.
Elsewhere it is made when the first of them comes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from mzsql.compute.engines.driver import Driver
from mzsql.compute.replica.dataflows.dataflow import Dataflow
from mzsql.compute.replica.step.deltas import Deltas
from mzsql.compute.replica.step.expected import expected_relations
from mzsql.compute.replica.step.texts import empty_relation
from mzsql.expr.functions.table import Engine
from mzsql.render.rewrites.templates import TEMPLATES, StepTemplate


def prepare_steps(
    dataflow: Dataflow,
    driver: Driver,
    deltas: Deltas,
    unwanted: Callable[[], bool],
    *,
    several: bool,
) -> None:
    """Prepare an open dataflow's steps; nothing more once it is `unwanted`.

    Args:
        dataflow: it.
        driver: plans.
        deltas: the replica's.
        unwanted: asked now and then.
        several: whether also steps over several times.

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
    if unwanted():
        return
    expected = expected_relations(dataflow, template)
    if expected is not None:
        template.expect(expected, partial(driver.prepare, schemas))
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
    for changed in likely_changes([f"delta_{one.spec.id}" for one in dataflow.inputs]):
        if unwanted():
            return
        rendered.template(Engine.DUCKDB, changed, at_once=not rendered.temporal)
    if several and not rendered.temporal and not unwanted():
        _prepare_several(dataflow, driver)


def _prepare_several(dataflow: Dataflow, driver: Driver) -> None:
    """Plan the full text of a step over several times, and make its lookups for a change of each input alone; no more than
    are kept beside what was made for steps at once.
    """
    template = dataflow.rendered.template(Engine.DUCKDB)
    if template.is_long or template.step is None or driver.is_planned(template.text):
        return
    reads = template.step.reads
    driver.plan(template.text, {name: empty_relation(dataflow, name).schema for name in reads})
    for one in itertools.islice(dataflow.inputs, TEMPLATES // 4):
        dataflow.rendered.template(Engine.DUCKDB, [f"delta_{one.spec.id}"])


def likely_changes(inputs: Sequence[str]) -> list[tuple[str, ...]]:
    """The sets of inputs whose lookups are made in advance: each input, then each two, as a row and those that refer to
    it come together; no more than are kept of sets that came.
    """
    alone = itertools.combinations(inputs, 1)
    return list(itertools.islice((*alone, *itertools.combinations(inputs, 2)), TEMPLATES // 2))


def _keys(template: StepTemplate) -> Iterator[tuple[str, str]]:
    """The statements of a template's lookups that compute keys, each with the relation that it reads."""
    for lookup in template.lookups:
        sources = lookup.sources or ()
        arity = min((len(source.exprs) for source in sources), default=0)
        for source in sources if arity else ():
            if source.columns(arity) is None:
                yield source.keys(arity), source.relation
