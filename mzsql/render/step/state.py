"""Inputs and state in a step: where updates come from, which rows are kept, what is looked up.

Promise: a state relation shows what existed below `lower` at time ``lower - 1``, so state and updates can be united
without special cases. An arrangement is kept only if something looks it up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.table import Engine
from mzsql.expr.mfp import MapFilterProject
from mzsql.expr.scalar import ColumnOrder, Scalar
from mzsql.expr.temporal import MfpPlan
from mzsql.lir import plan as lir
from mzsql.render.nodes import temporal as events
from mzsql.render.nodes.collection import (
    Arranged,
    Collection,
    Lookups,
    arranged_trace,
    driven,
    either,
    nothing,
    unknown,
)
from mzsql.render.nodes.fronts import comparable
from mzsql.render.nodes.naming import Shape, arranged_row, index_form
from mzsql.render.nodes.recursion import Recursion
from mzsql.render.nodes.renderer import Renderer
from mzsql.render.rendered import ArrangementSpec
from mzsql.render.statement import (
    DIFF,
    ERROR,
    TIME,
    Ast,
    big,
    col,
    named,
    select,
    union_all,
)
from mzsql.repr.frontier import Timestamp
from mzsql.repr.ids import GlobalId
from mzsql.repr.types import ColumnType

#: Column that tells rows apart if all updates have one time: 1 for updates, 0 for state.
NEW = "mz_new"


class StepState(Renderer):
    """The part of a step's rendering that handles inputs and state.

    Attributes:
        specs: the arrangements that are needed, by name, each after those below it.
        batches: for each of them the relation of its new rows.
        lookups: what is read of each arrangement.
        recursions: recursive nodes, whose changes a runner computes before the statement.
        at_once: whether all updates of the step have one time.
    """

    meta = (TIME, DIFF)

    def __init__(
        self,
        shape: Shape,
        engine: Engine,
        lower: Timestamp,
        upper: Timestamp,
        *,
        at_once: bool = False,
    ) -> None:
        super().__init__(shape, engine)
        self.at_once = at_once
        self.lower = lower
        self.upper = upper
        self.specs: dict[str, ArrangementSpec] = {}
        self.batches: dict[str, str] = {}
        self.lookups = Lookups()
        self.recursions: list[Recursion] = []
        self._deltas = frozenset(self.input_relation(spec.id) for spec in shape.inputs)

    def also_changes(self, relation: str) -> None:
        """Record that a relation holds changes, although it is not an input."""
        self._deltas |= {relation}

    # --- leaves ---

    def input_relation(self, gid: GlobalId) -> str:
        """The relation of the input's updates."""
        return f"delta_{gid}"

    def index_arrangement(self, imported: lir.IndexImport) -> Arranged:
        """The index's rows below `lower`, and its updates."""
        spec = self.shape.input[imported.id]
        form = index_form(imported)
        delta = f"delta_{imported.id}"
        if spec.has_errors:
            items = self.columns(len(spec.columns), errors=False)
            query = select(items, delta, where=[s.is_null(col(ERROR))])
            delta = self.out.define(f"import_{imported.id}_a", query)
        name = f"arr_{imported.id}"
        return Arranged(
            form.key,
            form.permutation,
            form.thinning,
            spec.columns,
            self.full(f"import_{imported.id}_f", name, delta, len(spec.columns)),
            delta,
            name,
            arranged_trace(name, spec.columns, form.permutation),
            name,
        )

    def constant(self, node: lir.Constant) -> Collection:
        """A constant has no updates."""
        # Its rows are only rendered in a hydration. Rendered here too, a constant that cannot be is refused before the
        # dataflow is created.
        self.literal_rows(node)
        name = self.define(node.lir_id, "", self.empty(node.columns))
        return Collection(name, node.columns, errors=False, trace=nothing)

    # --- filters on the time ---

    def temporal(self, node: lir.Plan, suffix: str, plan: MfpPlan, below: Collection) -> Collection:
        """The events of the step's updates, and those kept from earlier that happen in it."""
        lid, arity, errors = node.lir_id, len(below.columns), below.errors
        part = f"{suffix}t"
        rows = self.define(
            lid,
            f"{suffix}v",
            events.intervals(
                plan, below.relation, arity, self.engine, now=col(TIME), errors=errors
            ),
        )
        made = self.define(
            lid,
            f"{suffix}e",
            events.events(
                rows, arity, self.engine, errors=errors, timed=True, goes=bool(plan.upper)
            ),
        )
        name = self.state_name(node, part)
        bounds = (big(self.lower, self.engine), big(self.upper, self.engine))
        batch = events.kept_events(made, name, arity, errors=errors, bounds=bounds)
        columns = events.event_columns(below.columns)
        self.keep(node, part, self.define(lid, f"{part}n", batch), columns, 1)
        self.lookups.need_due(name)
        query = events.at_once(made, name, arity, self.engine, errors=errors, bounds=bounds)
        kept = arranged_trace(name, columns, range(1, arity + 1))
        return Collection(
            self.define(lid, suffix, query), below.columns, errors, either(below.trace, kept)
        )

    # --- arrangements ---

    def full(self, name: str, state: str, delta: str, arity: int) -> str:
        """Define the state united with the step's updates; if these have one time, with a column that tells them apart."""
        branches = []
        for number, relation in enumerate((state, delta)):
            items: list[Ast] = [*self.columns(arity, errors=False)]
            if self.at_once:
                items.append(named(big(number, self.engine), NEW))
            branches.append(select(items, relation))
        return self.out.define(name, union_all(branches))

    def keep(
        self,
        node: lir.Plan,
        part: str,
        batch: str,
        columns: tuple[ColumnType, ...],
        key_arity: int,
        additive: tuple[int, ...] = (),
        order: tuple[ColumnOrder, ...] = (),
    ) -> str:
        """Keep a relation's rows as state of the node; return the arrangement's name."""
        name = self.state_name(node, part)
        if not all(map(comparable, columns[:key_arity])):
            order = ()  # such keys cannot be told apart when their hashes are equal
        what = self.part_of_fingerprint(node, part, columns, key_arity)
        if order:
            what += f" sorted by {order!r}"
        self.specs[name] = ArrangementSpec(
            name, node.lir_id, columns, key_arity, additive, self.fingerprint(node, what), order
        )
        self.batches[name] = batch
        return name

    @staticmethod
    def part_of_fingerprint(
        node: lir.Plan, part: str, columns: tuple[ColumnType, ...], key_arity: int
    ) -> str:
        """What distinguishes the arrangements of a node, independent of their names."""
        if isinstance(node, lir.ArrangeBy):
            # Two nodes may make the same arrangement under different numbers; its key identifies it.
            number = int(part[1:]) if part else 0
            made = list(node.forms.arranged)
            keys = [repr(form.key) for form in made]
            part = f"by {keys[number] if number < len(keys) else part}"
        return f"{part} {key_arity} {columns!r}"

    def arrange(
        self, node: lir.ArrangeBy, number: int, form: lir.ArrangementForm, below: Collection
    ) -> Arranged:
        """Arrange a collection and keep it."""
        if below.errors:
            below = self.stripped(below, node.lir_id, f"r{number}")
        part = f"k{number}" if number else ""
        return self.arranged(node, part, form, below)

    def arranged(
        self, node: lir.Plan, part: str, form: lir.ArrangementForm, below: Collection
    ) -> Arranged:
        """An arrangement of a collection in a form, kept as state."""
        arity = len(below.columns)
        row = arranged_row(form)
        mfp = MapFilterProject(arity, row, (), tuple(range(arity, arity + len(row))))
        made = self.apply(node.lir_id, f"{part}a", mfp, below)
        delta = self.good(made, node.lir_id, f"{part}ag")
        name = self.keep(node, part, delta, made.columns, len(form.key))
        full = self.full(self.name(node.lir_id, f"{part}f"), name, delta, len(made.columns))
        return Arranged(
            form.key,
            form.permutation,
            form.thinning,
            made.columns,
            full,
            delta,
            name,
            arranged_trace(name, made.columns, form.permutation),
            name,
        )

    def need(self, name: str | None, key: tuple[Scalar, ...], rows: Collection) -> None:
        """Declare a lookup in an arrangement by a key of rows that change; `name` is None if there is no state to look
        up.
        """
        if name is not None:
            self.lookups.need(name, driven(rows.trace if key else unknown, self.drivers(rows))(key))

    def drivers(self, rows: Collection) -> frozenset[str]:
        """Inputs' updates and kept events, of which one must have rows for the collection to change."""
        read = self.out.bases(rows.relation)
        return frozenset(one for one in read if one in self._deltas or one in self.lookups.due)


#: Functions that render the updates of nodes, by node class.
Nodes = Mapping[type[Any], Callable[[StepState, Any], Collection]]
