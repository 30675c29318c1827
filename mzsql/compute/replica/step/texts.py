"""Which of its texts an in-process step runs, and over which relations.

Promise: the text's rows, with the outputs that need no engine, are the step's. A dataflow has one statement for all
sets of inputs that may have updates. Planned once, its full text is run by every step until a lean one of it is
there, whichever inputs have updates: the others' relations are empty. While it is not planned, the text of just the
inputs with updates is run, which is shorter.

Trade-off: over empty relations the general text does some needless work, about half of what it takes over few rows;
writing and planning a text of its own for each set takes ten to thirty times as much, each time another set comes. So a set
gets one only once that pays.
docs/architecture.md, "The way of an update through a dataflow", step 2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from mzsql.compute.engines.driver import PLANNED_ROWS, Driver
from mzsql.compute.replica.dataflows.dataflow import Dataflow
from mzsql.compute.replica.step.relation_facts import measured
from mzsql.compute.replica.target import no_updates
from mzsql.render.facts import Fact
from mzsql.render.rewrites.straight import Straight
from mzsql.render.rewrites.templates import StepTemplate, Text
from mzsql.repr.errors import InternalError
from mzsql.repr.types import updates_schema

#: With its full text planned, a step is run so often before a lean text is made, for all that was seen until then.
STEPS_BEFORE_LEAN = 4


def empty_relation(dataflow: Dataflow, name: str) -> pa.Table:
    """A relation that a step of the dataflow reads, without rows: an input's updates, an arrangement's rows, or the
    changes of a recursion.

    Raises:
        InternalError: no step of the dataflow has a relation of that name.
    """
    arrangement = dataflow.readable().get(name)
    if arrangement is not None:
        return arrangement.rows(no_updates(arrangement.schema))
    for one in dataflow.inputs:
        if name == f"delta_{one.spec.id}":
            return no_updates(one.schema)
    for recursion in dataflow.rendered.recursions:
        if name == recursion.relation:
            return no_updates(updates_schema(recursion.columns))
    raise InternalError(f"a step of {dataflow.gid} reads {name}, which is unknown")


@dataclass(frozen=True)
class Chosen:
    """A text to be run (None: there is nothing to run), the relations that it reads, and outputs that are rows of a
    relation unchanged, besides the text's.
    """

    text: Text | None
    reads: tuple[str, ...]
    straight: tuple[Straight, ...] = ()


@dataclass(frozen=True)
class Texts:
    """The texts of one step.

    Attributes:
        own: of the inputs with updates.
        whole: of all inputs.
        driver: runs them.
        later: runs work that makes later steps faster.
        known: what is known of the columns of a relation without measuring it, by relation.
    """

    own: StepTemplate
    whole: StepTemplate
    driver: Driver
    later: Callable[[Callable[[], None]], None]
    known: Mapping[str, Callable[[str], Fact]] = field(default_factory=dict)

    def choose(
        self,
        tables: Mapping[str, pa.Table],
        empty: Callable[[str], pa.Table],
        *,
        goes_on: bool,
    ) -> tuple[Chosen, Mapping[str, pa.Table]]:
        """Choose a text.

        Args:
            tables: the relations that `own` reads.
            empty: makes a relation without rows.
            goes_on: whether such steps were run before the dataflow was opened.

        Returns:
            The text, and all relations that it may read.
        """
        own, whole = self.own.step, self.whole.step
        assert own is not None
        assert whole is not None
        written = Chosen(self.own.text, own.reads)
        if sum(table.num_rows for table in tables.values()) > PLANNED_ROWS:
            return written, tables
        planned = self.driver.is_planned(self.whole.text)
        if not (self.own.comes_again() or planned or goes_on):
            return written, tables
        if self.whole.is_long:
            lean = self._lean(self.own, tables, after=0)
            return written if lean is None else lean, tables
        every = {name: tables[name] if name in tables else empty(name) for name in whole.reads}
        lean = self._lean(self.whole, every, after=STEPS_BEFORE_LEAN if planned else 0)
        if lean is not None:
            return lean, every
        return (Chosen(self.whole.text, whole.reads), every) if planned else (written, tables)

    def _lean(
        self, template: StepTemplate, tables: Mapping[str, pa.Table], *, after: int
    ) -> Chosen | None:
        asked = template.asked
        relations = {
            name: measured(
                one, asked.get(name, set()), self.known.get(name) if one.num_rows else None
            )
            for name, one in tables.items()
        }
        schemas = {name: table.schema for name, table in tables.items()}
        prepare = partial(self.driver.prepare, schemas)
        made = template.lean(relations, self.later, prepare, after=after)
        return None if made is None else Chosen(made.text, made.reads, made.straight)
