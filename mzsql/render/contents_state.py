"""What the walk over a plan keeps and reads when contents at one time are rendered, one arrangement after the other.

Promise: a hydration's walk ends at the first arrangement that is not filled yet, with what fills it (`Unfilled`); a one-shot query's
never does, as it keeps nothing. An error is put out by one stage only.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.table import Engine
from mzsql.expr.mfp import MapFilterProject
from mzsql.expr.temporal import MfpPlan
from mzsql.lir import plan as lir
from mzsql.render import temporal as events
from mzsql.render.collection import Arranged, Collection
from mzsql.render.naming import Shape, arranged_row, index_form
from mzsql.render.recursion import Loop
from mzsql.render.renderer import Renderer
from mzsql.render.statement import ERROR, big, col, select
from mzsql.repr.errors import Unsupported
from mzsql.repr.frontier import Timestamp
from mzsql.repr.ids import GlobalId
from mzsql.repr.types import ColumnType


@dataclass
class Unfilled(Exception):
    """The walk has come to an arrangement that is to be filled.

    Attributes:
        arrangement: its name.
        lir_id: its node.
        relation: columns c0 …, mz_error where `errors`, mz_diff.
        carried: streams whose errors `relation` has in it.
    """

    arrangement: str
    lir_id: int
    relation: str
    columns: tuple[ColumnType, ...]
    errors: bool
    carried: frozenset[str]


class ContentsState(Renderer):
    """What contents at one time are rendered from, and what of it is kept.

    `filled` names the arrangements that are there (None: a one-shot query, nothing is kept); `emitted` the streams whose errors earlier
    stages have put out; `as_of` the time, which a one-shot query's plan has in it already.
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
        """As ever, but what an earlier stage has put out is not put out again."""
        if relation not in self.emitted:
            super().divert(relation)

    def input_relation(self, gid: GlobalId) -> str:
        """The input's contents."""
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
        """The rows."""
        name = self.define(node.lir_id, "", self.literal_rows(node))
        return Collection(name, node.columns, errors=node.error is not None)

    # --- filters on the time ---

    def temporal(self, node: lir.Plan, suffix: str, plan: MfpPlan, below: Collection) -> Collection:
        """The rows that are there at the time; the events still to come are kept."""
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
        """The filled arrangement of a part of a node; None in a one-shot query.

        Raises:
            Unfilled: it is to be filled with `fill`.
        """
        if self.filled is None:
            return None
        name = self.state_name(node, part)
        if name not in self.filled:
            raise Unfilled(name, node.lir_id, fill.relation, fill.columns, fill.errors, carried)
        return name

    def carrying(self, below: Collection, lir_id: int, suffix: str) -> Collection:
        """A stream to fill an arrangement with: its errors ride along unless they have been put out."""
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
        """An arrangement of a collection, in a form."""
        arity = len(below.columns)
        row = arranged_row(form)
        mfp = MapFilterProject(arity, row, (), tuple(range(arity, arity + len(row))))
        source = self.carrying(below, node.lir_id, f"{part}r")
        made = self.apply(node.lir_id, f"{part}a", mfp, source)
        carried = frozenset([below.relation]) if source.errors else frozenset[str]()
        name = self.kept(node, part, made, carried)
        relation = self.good(made, node.lir_id, f"{part}ag") if name is None else name
        return Arranged(form.key, form.permutation, form.thinning, made.columns, relation)
