"""State and inputs when contents at one time are rendered, one arrangement after the other.

Promise: a hydration's walk ends at the first arrangement that is not filled yet, with what fills it (`Unfilled`). A
one-shot query's walk never does, since it keeps nothing. An error is returned by only one stage.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.table import Engine
from mzsql.expr.mfp import MapFilterProject
from mzsql.expr.temporal import MfpPlan
from mzsql.lir import plan as lir
from mzsql.render.nodes import temporal as events
from mzsql.render.nodes.collection import Arranged, Collection
from mzsql.render.nodes.naming import Shape, arranged_row, index_form
from mzsql.render.nodes.recursion import Loop
from mzsql.render.nodes.renderer import Renderer
from mzsql.render.statement import ERROR, big, col, select
from mzsql.repr.errors import Unsupported
from mzsql.repr.frontier import Timestamp
from mzsql.repr.ids import GlobalId
from mzsql.repr.types import ColumnType


@dataclass
class Unfilled(Exception):
    """The walk has reached an arrangement that must be filled.

    Attributes:
        arrangement: its name.
        lir_id: its node.
        relation: what fills it: columns c0 …, mz_error if `errors`, mz_diff.
        columns: types of c0 ….
        errors: whether there is a column mz_error.
        carried: streams whose errors are in `relation`.
    """

    arrangement: str
    lir_id: int
    relation: str
    columns: tuple[ColumnType, ...]
    errors: bool
    carried: frozenset[str]


class ContentsState(Renderer):
    """The part of rendering contents that handles inputs and state.

    `filled` names the arrangements that exist (None: a one-shot query, which keeps nothing); `emitted` the streams
    whose errors earlier stages have returned; `as_of` is the time (a one-shot query has it in its plan already).
    """

    def __init__(
        self,
        shape: Shape,
        engine: Engine,
        filled: frozenset[str] | None = None,
        emitted: frozenset[str] = frozenset(),
        as_of: Timestamp | None = None,
    ) -> None:
        super().__init__(shape, engine)
        self.filled = filled
        self.emitted = emitted
        self.as_of = as_of
        self.loops: list[Loop] = []
        self._numbers = count()
        self._recursive: dict[int, Collection] = {}

    @property
    def hydrating(self) -> bool:
        """Whether arrangements are kept."""
        return self.filled is not None

    def divert(self, relation: str) -> None:
        """As in `Renderer`, but errors that an earlier stage has returned are not returned again."""
        if relation not in self.emitted:
            super().divert(relation)

    def input_relation(self, gid: GlobalId) -> str:
        """The relation of the input's contents."""
        return f"snap_{gid}"

    def index_arrangement(self, imported: lir.IndexImport) -> Arranged:
        """The index's contents."""
        spec = self.shape.input[imported.id]
        form = index_form(imported)
        relation = f"snap_{imported.id}"
        if spec.has_errors:
            items = self.columns(len(spec.columns), errors=False)
            query = select(items, relation, where=[s.is_null(col(ERROR))])
            relation = self.out.define(f"import_{imported.id}_a", query)
        return Arranged(form.key, form.permutation, form.thinning, spec.columns, relation)

    def constant(self, node: lir.Constant) -> Collection:
        """A constant's rows."""
        name = self.define(node.lir_id, "", self.literal_rows(node))
        return Collection(name, node.columns, errors=node.error is not None)

    # --- filters on the time ---

    def temporal(self, node: lir.Plan, suffix: str, plan: MfpPlan, below: Collection) -> Collection:
        """The rows that exist at the time; the events that are still to come are kept.

        Raises:
            Unsupported: no time was given: the query is answered once, and the plan holds the value of
                ``mz_now()`` already.
        """
        if self.as_of is None:
            raise Unsupported("a query that is answered once has the value of mz_now() in its plan")
        lid, arity, errors = node.lir_id, len(below.columns), below.errors
        part, now = f"{suffix}t", big(self.as_of, self.engine)
        rows = self.define(
            lid,
            f"{suffix}v",
            events.intervals(plan, below.relation, arity, self.engine, now=now, errors=errors),
        )
        made = self.define(
            lid,
            f"{suffix}e",
            events.events(
                rows, arity, self.engine, errors=errors, timed=False, goes=bool(plan.upper)
            ),
        )
        ahead = events.still_to_come(made, arity, errors=errors, now=now)
        fill = Collection(
            self.define(lid, f"{part}n", ahead), events.event_columns(below.columns), errors=False
        )
        self.kept(node, part, fill)
        there = s.lte(col(events.FROM), now)
        items = self.columns(arity, errors=errors)
        name = self.define(lid, suffix, select(items, rows, where=[there]))
        return Collection(name, below.columns, errors)

    # --- what is kept ---

    def kept(
        self,
        node: lir.Plan,
        part: str,
        fill: Collection,
        carried: frozenset[str] = frozenset(),
    ) -> str | None:
        """The name of the filled arrangement of a part of a node; None in a one-shot query.

        Raises:
            Unfilled: it must be filled with `fill`.
        """
        if self.filled is None:
            return None
        name = self.state_name(node, part)
        if name not in self.filled:
            # It ends the walk over the plan wherever that is: this stage fills the arrangement, and the next walk
            # finds it filled.
            raise Unfilled(name, node.lir_id, fill.relation, fill.columns, fill.errors, carried)
        return name

    def carrying(self, below: Collection, lir_id: int, suffix: str) -> Collection:
        """A stream to fill an arrangement with, including its errors unless they have been returned."""
        if below.errors and (not self.hydrating or below.relation in self.emitted):
            return self.stripped(below, lir_id, suffix)
        return below

    def arrange(
        self, node: lir.ArrangeBy, number: int, form: lir.ArrangementForm, below: Collection
    ) -> Arranged:
        """Arrange a collection."""
        return self.arranged(node, f"k{number}" if number else "", form, below)

    def arranged(
        self, node: lir.Plan, part: str, form: lir.ArrangementForm, below: Collection
    ) -> Arranged:
        """An arrangement of a collection in a form."""
        arity = len(below.columns)
        row = arranged_row(form)
        mfp = MapFilterProject(arity, row, (), tuple(range(arity, arity + len(row))))
        source = self.carrying(below, node.lir_id, f"{part}r")
        made = self.apply(node.lir_id, f"{part}a", mfp, source)
        carried = frozenset([below.relation]) if source.errors else frozenset[str]()
        name = self.kept(node, part, made, carried)
        relation = self.good(made, node.lir_id, f"{part}ag") if name is None else name
        return Arranged(form.key, form.permutation, form.thinning, made.columns, relation)
