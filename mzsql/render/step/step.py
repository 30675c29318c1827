"""A step: from the inputs' updates in ``[lower, upper)`` to the output's updates, each at its own time.

Promise: the result is exact at each timestamp. A state relation shows what existed below `lower` at time ``lower -
1``, so state and updates form one relation, over which windows compute running values (or groups, if all updates
have one time, `mzsql.render.step.rolled`). An update of one join input meets rows of another input that are not later
(``<=`` for inputs before it in order, ``<`` for those after it), so each pair of rows is counted once, at the later
one's time. Groups roll partial sums forward over their times. All output is one tagged UNION ALL. The forms were
validated by random tests; `tests/render` also checks that deliberately broken forms are noticed.
docs/architecture.md, "The way of an update through a dataflow", step 2.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import expressions as exp

from mzsql.expr.functions import sql as s
from mzsql.expr.mfp import MapFilterProject
from mzsql.lir import plan as lir
from mzsql.lir.forms import arrangement_form
from mzsql.render.contents.contents import recursion_of
from mzsql.render.kept import Kept
from mzsql.render.nodes.collection import Collection, relation_trace
from mzsql.render.nodes.naming import arranged_row
from mzsql.render.nodes.renderer import Renderer
from mzsql.render.rendered import Step, StepOutput
from mzsql.render.statement import (
    DIFF,
    ERROR,
    TIME,
    Ast,
    col,
    named,
    no_error,
    null_of,
    select,
    union_all,
)
from mzsql.render.step import join as step_join
from mzsql.render.step import reduce as step_reduce
from mzsql.render.step import topk as step_topk
from mzsql.render.step.state import Nodes, StepState
from mzsql.repr.types import ColumnType


class StepRenderer(StepState):
    """Renders one step."""

    def recursion(self, node: lir.LetRec) -> Collection:
        """A recursion: the runner provides its changes, as it does an input's."""
        made = recursion_of(self, node)
        self.recursions.append(made)
        self.also_changes(made.relation)
        trace = relation_trace(made.relation, made.columns)
        return Collection(made.relation, made.columns, errors=True, trace=trace)

    def stateful(self, node: lir.Plan) -> Collection:
        """Render a node that keeps state."""
        return _STATEFUL[type(node)](self, node)

    # --- the statement ---

    def step(self) -> Step:
        """Render the whole step."""
        root = self.shape.desc.root
        made = self.render(root.plan)
        export = export_of(self, made, root.plan.lir_id)
        layout = Layout()
        outputs: list[StepOutput] = [
            StepOutput(0, None, export.columns, layout.place(export.columns))
        ]
        for tag, (name, spec) in enumerate(self.specs.items(), start=1):
            outputs.append(StepOutput(tag, name, spec.columns, layout.place(spec.columns)))
        branches = [self._branch(outputs[0], export.relation, layout, errors=export.errors)]
        branches += [self._failed(query, layout) for query, _ in self.diverted]
        branches += [
            self._branch(output, self.batches[output.arrangement], layout, errors=False)
            for output in outputs[1:]
            if output.arrangement is not None
        ]
        body = union_all(branches)
        _, others = self.out.reached(body)
        statement = self.out.finish(body)
        return Step(Kept(statement), tuple(outputs), tuple(sorted(others)), tuple(layout.types))

    def _branch(
        self, output: StepOutput, relation: str, layout: Layout, *, errors: bool
    ) -> exp.Select:
        where = {slot: i for i, slot in enumerate(output.positions)}
        items: list[Ast] = [named(s.integer(s.num(output.tag)), "mz_tag")]
        for slot, typ in enumerate(layout.types):
            value = (
                s.cast(col(f"c{where[slot]}"), typ.type, self.engine)
                if slot in where
                else null_of(typ, self.engine)
            )
            items.append(named(value, f"c{slot}"))
        items.append(named(col(ERROR) if errors else no_error(self.engine), ERROR))
        items += self._time_and_diff()
        return select(items, relation)

    def _failed(self, query: exp.Select, layout: Layout) -> exp.Select:
        """Error rows that were split off a stream, as rows of the output."""
        items: list[Ast] = [named(s.integer(s.num(0)), "mz_tag")]
        items += [named(null_of(t, self.engine), f"c{i}") for i, t in enumerate(layout.types)]
        items += [col(ERROR), *self._time_and_diff()]
        made = query.copy()
        made.set("expressions", items)
        return made

    @staticmethod
    def _time_and_diff() -> list[Ast]:
        return [named(s.big(col(TIME)), TIME), named(s.big(col(DIFF)), DIFF)]


class Layout:
    """The columns of a tagged result, which outputs share where their types agree."""

    def __init__(self) -> None:
        self.types: list[ColumnType] = []

    def place(self, columns: Sequence[ColumnType]) -> tuple[int, ...]:
        """Assign a column of the result to each of an output's columns."""
        free = list(range(len(self.types)))
        placed: list[int] = []
        for typ in columns:
            slot = next((n for n in free if self.types[n].type == typ.type), None)
            if slot is None:
                slot = len(self.types)
                self.types.append(ColumnType(typ.type))
            else:
                free.remove(slot)
            placed.append(slot)
        return tuple(placed)


def export_of(renderer: Renderer, made: Collection, lir_id: int) -> Collection:
    """The dataflow's output: the root's rows; for an index, in its arranged column order."""
    export = renderer.shape.desc.export
    if not isinstance(export, lir.IndexExport):
        return made
    arity = len(made.columns)
    row = arranged_row(arrangement_form(export.key, arity))
    mfp = MapFilterProject(arity, row, (), tuple(range(arity, arity + len(row))))
    return renderer.apply(lir_id, "export", mfp, made)


#: The nodes that keep state.
_STATEFUL: Nodes = {**step_join.NODES, **step_reduce.NODES, **step_topk.NODES}
