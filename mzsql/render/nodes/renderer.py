"""The walk over a plan that steps, hydrations and one-shot queries share, with the row-wise nodes.

Promise: each node becomes a CTE ``lir_<id>`` (its inner parts have suffixes). Error rows flow with the others, in a
column mz_error, through row-wise nodes. A node that must see good rows only splits them off, once for each stream,
and they join the output at the end. So every failing evaluation is counted exactly once, in a step as in a
hydration, however many nodes read the stream. Negate leaves errors unchanged: an error is retracted only by the
retraction of the row that caused it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from sqlglot import expressions as exp

from mzsql.expr import functions, spell
from mzsql.expr.functions import sql as s
from mzsql.expr.functions.table import Engine, Sql
from mzsql.expr.mfp import MapFilterProject
from mzsql.expr.scalar import Call, Column, Literal, Scalar, scalar_type
from mzsql.expr.temporal import MfpPlan, is_temporal, plan_temporal
from mzsql.lir import plan as lir
from mzsql.lir.forms import form_by_key, forms_of
from mzsql.render.nodes.collection import (
    Arranged,
    Collection,
    arranged_trace,
    either,
    relation_trace,
    through_mfp,
    within,
)
from mzsql.render.nodes.naming import Shape, arranged_row, index_form, over_raw
from mzsql.render.nodes.rows import can_fail, mapped, output_types
from mzsql.render.statement import (
    DIFF,
    ERROR,
    Ast,
    Query,
    Statement,
    big,
    col,
    explode,
    named,
    no_error,
    null_of,
    select,
    subquery,
    union_all,
)
from mzsql.render.updates import consolidated
from mzsql.repr.ids import GlobalId
from mzsql.repr.interrupt import check_for_interrupts
from mzsql.repr.types import BOOLEAN, TEXT, ColumnType

_Inner = TypeVar("_Inner", bound="Renderer")


class Renderer(ABC):
    """A walk over one dataflow for one engine.

    Attributes:
        meta: the columns that follow a collection's own (and mz_error): mz_time in a step, mz_diff.
        diverted: queries of error rows (mz_error and `meta`) that were split off, each with the relation that it
            reads.
    """

    meta: tuple[str, ...] = (DIFF,)

    def __init__(self, shape: Shape, engine: Engine) -> None:
        self.shape = shape
        self.engine = engine
        self.out = Statement(engine)
        self.diverted: list[tuple[exp.Select, str]] = []
        self._shared: dict[int | str, Collection] = {}
        self._pending: dict[int, lir.Plan] = {}
        self._fingerprints: dict[int, str] = {}
        self._taken: set[str] = set()

    def inside(self, inner: _Inner) -> _Inner:
        """Give another renderer the bindings that are in scope here."""
        inner._pending = dict(self._pending)
        inner._fingerprints = dict(self._fingerprints)
        return inner

    # --- the walk ---

    def render(self, node: lir.Plan) -> Collection:
        """Render a node; return its output."""
        check_for_interrupts()
        match node:
            case lir.Constant():
                return self.constant(node)
            case lir.Get():
                return self._get(node)
            case lir.Let(id=local, value=value, body=body):
                self._pending[local] = value
                self._fingerprints[local] = self.shape.content(value, self._fingerprints)
                made = self.render(body)
                return replace(made, relation=self._alias(node.lir_id, made))
            case lir.LetRec():
                return self.recursion(node)
            case lir.Mfp():
                return self._mfp(node)
            case lir.FlatMap():
                return self._flat_map(node)
            case lir.Negate():
                return self._negate(node)
            case lir.Union():
                return self._union(node)
            case lir.ArrangeBy():
                return self._arrange_by(node)
            case _:
                return self.stateful(node)

    @abstractmethod
    def recursion(self, node: lir.LetRec) -> Collection:
        """Render a LetRec."""

    @abstractmethod
    def constant(self, node: lir.Constant) -> Collection:
        """Render a constant, whose rows exist from the beginning of time."""

    @abstractmethod
    def stateful(self, node: lir.Plan) -> Collection:
        """Render a node that is not row-wise: it looks at earlier rows, or at several at once."""

    @abstractmethod
    def arrange(
        self, node: lir.ArrangeBy, number: int, form: lir.ArrangementForm, below: Collection
    ) -> Arranged:
        """The `number`-th arrangement that an ArrangeBy makes of the collection below it."""

    @abstractmethod
    def input_relation(self, gid: GlobalId) -> str:
        """The name of the relation with an input's rows."""

    @abstractmethod
    def index_arrangement(self, imported: lir.IndexImport) -> Arranged:
        """An imported index as an arrangement."""

    def fingerprint(self, node: lir.Plan, part: str) -> str:
        """The fingerprint of a part of the node's state."""
        return self.shape.fingerprint(node, part, self._fingerprints)

    # --- naming and selecting ---

    @staticmethod
    def state_name(node: lir.Plan, part: str) -> str:
        """The name of a part of a node's state: ``arr_<id>`` or ``arr_<id>_<part>``."""
        return f"arr_{node.lir_id}_{part}" if part else f"arr_{node.lir_id}"

    def name(self, lir_id: int, suffix: str = "") -> str:
        """``lir_<id>`` or ``lir_<id>_<suffix>``."""
        return f"lir_{lir_id}_{suffix}" if suffix else f"lir_{lir_id}"

    def define(self, lir_id: int, suffix: str, query: Query) -> str:
        """Define a CTE of a node; return its name. A query that is often not read is passed as a function, which is
        called when it is read.
        """
        return self.out.define(self.name(lir_id, suffix), query)

    def columns(self, arity: int, *, errors: bool) -> list[Ast]:
        """The columns c0 …, mz_error if there is one, and `meta`."""
        return [
            *(col(f"c{i}") for i in range(arity)),
            *([col(ERROR)] if errors else []),
            *(col(name) for name in self.meta),
        ]

    def _alias(self, lir_id: int, made: Collection) -> str:
        return self.define(
            lir_id,
            "",
            lambda: select(self.columns(len(made.columns), errors=made.errors), made.relation),
        )

    def apply(
        self, lir_id: int, suffix: str, mfp: MapFilterProject, below: Collection
    ) -> Collection:
        """Apply an MFP to a collection's raw rows, as a CTE; an inner part that changes nothing gets no CTE."""
        if suffix and mfp.is_identity:
            return replace(below, arranged={})
        return Collection(
            self.define(lir_id, suffix, self._mapped(mfp, below)),
            output_types(mfp, below.columns),
            below.errors or can_fail(mfp, below.columns),
            through_mfp(below.trace, mfp),
        )

    def _mapped(self, mfp: MapFilterProject, below: Collection) -> Callable[[], exp.Expression]:
        """A function that makes the query of an MFP over a collection."""
        return lambda: mapped(
            mfp,
            below.columns,
            below.relation,
            self.engine,
            carry=self.meta,
            errors_in=below.errors,
        )[0]

    def filtered(
        self, node: lir.Plan, suffix: str, mfp: MapFilterProject, below: Collection
    ) -> Collection:
        """As `apply`; if predicates concern ``mz_now()``, rows appear and disappear by themselves."""
        plan = plan_temporal(mfp)
        if plan is None:
            return self.apply(node.lir_id, suffix, mfp, below)
        bounded = self.apply(node.lir_id, f"{suffix}b", plan.with_bounds(), below)
        row = bounded.columns[: plan.mfp.output_arity]
        return self.temporal(node, suffix, plan, replace(bounded, columns=row, arranged={}))

    @abstractmethod
    def temporal(self, node: lir.Plan, suffix: str, plan: MfpPlan, below: Collection) -> Collection:
        """The rows of a collection between their bounds, which are in the columns that follow its own in its relation."""

    # --- errors ---

    def take(self, relation: str) -> bool:
        """Whether nobody has taken over a stream's errors yet; from now on somebody has."""
        if relation in self._taken:
            return False
        self._taken.add(relation)
        return True

    def divert(self, relation: str) -> None:
        """Let a stream's error rows join the output, if nobody has taken them over yet."""
        if self.take(relation):
            items = [col(ERROR), *(col(name) for name in self.meta)]
            query = select(items, relation, where=[s.is_not_null(col(ERROR))])
            self.diverted.append((query, relation))

    def good(self, below: Collection, lir_id: int, suffix: str) -> str:
        """The relation of a collection's good rows; its errors are split off."""
        if not below.errors:
            return below.relation
        self.divert(below.relation)
        return self.stripped(below, lir_id, suffix).relation

    def stripped(self, below: Collection, lir_id: int, suffix: str) -> Collection:
        """A collection without its errors, which are accounted for elsewhere."""
        items = self.columns(len(below.columns), errors=False)
        query = select(items, below.relation, where=[s.is_null(col(ERROR))])
        return replace(below, relation=self.define(lir_id, suffix, query), errors=False)

    # --- Get ---

    def _get(self, node: lir.Get) -> Collection:
        plan = node.plan
        shared = self._local(node.id) if isinstance(node.id, int) else self._object(node)
        # Only the first reader of a shared stream passes its errors on, so that each is counted once.
        if shared.errors and not self.take(shared.relation):
            shared = self.stripped(shared, node.lir_id, "g")
        match plan:
            case lir.PassArrangements():
                return replace(shared, relation=self._alias(node.lir_id, shared))
            case lir.GetCollection(mfp=mfp):
                return self.filtered(node, "", mfp, shared)
            case lir.GetArrangement(key=key, row=row, mfp=mfp):
                form = form_by_key(node.keys, key)
                assert form is not None, "a Get reads an arrangement that it does not have"
                raw = over_raw(_only(mfp, row, form, shared.columns), form, len(shared.columns))
                return self.filtered(node, "", raw, shared)

    def _local(self, local: int) -> Collection:
        if local not in self._shared:
            self._shared[local] = self.render(self._pending[local])
        return self._shared[local]

    def _object(self, node: lir.Get) -> Collection:
        gid = GlobalId(str(node.id))
        if gid not in self._shared:
            self._shared[gid] = self._new_object(gid, node)
        return self._shared[gid]

    def _new_object(self, gid: GlobalId, reader: lir.Get) -> Collection:
        built = self.shape.objects.get(gid)
        if built is not None:
            return self.render(built.plan)
        indexes = self.shape.indexes_on(gid)
        source = self.shape.sources.get(gid)
        if source is not None:
            spec = self.shape.input[gid]
            relation = self.input_relation(gid)
            made = Collection(
                relation, spec.columns, spec.has_errors, relation_trace(relation, spec.columns)
            )
            if source.mfp is not None:
                made = self._import(reader, source.mfp, made)
        else:
            made = self._from_index(indexes[0])
        for imported in indexes:
            made.arranged[imported.key] = self.once(
                lambda imported=imported: self.index_arrangement(imported)  # type: ignore[misc]
            )
        return made

    def _import(self, reader: lir.Get, mfp: MapFilterProject, made: Collection) -> Collection:
        """A source after the row-wise work that all its readers share. State that it keeps counts as its first
        reader's.
        """
        if is_temporal(mfp):
            return self.filtered(reader, "i", mfp, made)
        return Collection(
            self.out.define(f"import_{reader.id}", self._mapped(mfp, made)),
            output_types(mfp, made.columns),
            made.errors or can_fail(mfp, made.columns),
            through_mfp(made.trace, mfp),
        )

    def _from_index(self, imported: lir.IndexImport) -> Collection:
        """The raw rows of an index, with the indexed object's columns in their order."""
        spec = self.shape.input[imported.id]
        relation = self.input_relation(imported.id)
        form = index_form(imported)
        items: list[Ast] = [named(col(f"c{at}"), f"c{i}") for i, at in enumerate(form.permutation)]
        items += [col(ERROR)] if spec.has_errors else []
        items += [col(name) for name in self.meta]
        name = self.out.define(f"import_{imported.id}", select(items, relation))
        trace = arranged_trace(relation, spec.columns, form.permutation)
        return Collection(name, imported.typ.columns, spec.has_errors, trace)

    @staticmethod
    def once(make: Callable[[], Arranged]) -> Callable[[], Arranged]:
        """A function that makes an arrangement when it is first called, and returns it again later."""
        made: list[Arranged] = []

        def get() -> Arranged:
            if not made:
                made.append(make())
            return made[0]

        return get

    # --- row-wise nodes ---

    def _mfp(self, node: lir.Mfp) -> Collection:
        below = self.render(node.input)
        mfp = node.mfp
        if node.input_key is not None:
            form = _form(node.input, node.input_key)
            mfp = over_raw(
                _only(mfp, node.input_row, form, below.columns), form, len(below.columns)
            )
        return self.filtered(node, "", mfp, below)

    def _negate(self, node: lir.Negate) -> Collection:
        below = self.render(node.input)
        items = self.columns(len(below.columns), errors=below.errors)
        turned: Ast = exp.Neg(this=col(DIFF))
        if below.errors:
            # See the module: an error row's diff is not negated.
            turned = s.case((s.is_null(col(ERROR)), turned), otherwise=col(DIFF))
        items[-1] = named(turned, DIFF)
        name = self.define(node.lir_id, "", select(items, below.relation))
        return Collection(name, below.columns, below.errors, below.trace)

    def _union(self, node: lir.Union) -> Collection:
        inputs = [self.render(below) for below in node.inputs]
        columns = tuple(
            ColumnType(first.type, any(i.columns[n].nullable for i in inputs))
            for n, first in enumerate(inputs[0].columns)
        )
        errors = any(below.errors for below in inputs)
        branches: list[exp.Expression] = []
        for below in inputs:
            items: list[Ast] = [col(f"c{i}") for i in range(len(columns))]
            if errors:
                items.append(col(ERROR) if below.errors else named(no_error(self.engine), ERROR))
            items += [col(name) for name in self.meta]
            branches.append(select(items, below.relation))
        query = union_all(branches)
        if node.consolidate_output:
            part = self.define(node.lir_id, "u", query)
            query = self.consolidated(part, len(columns), errors=errors)
        name = self.define(node.lir_id, "", query)
        return Collection(name, columns, errors, either(*(below.trace for below in inputs)))

    def consolidated(self, relation: str, arity: int, *, errors: bool) -> exp.Select:
        """Equal rows at equal times added up, without those that cancel."""
        return consolidated(relation, self.columns(arity, errors=errors)[:-1])

    def _arrange_by(self, node: lir.ArrangeBy) -> Collection:
        below = self.render(node.input)
        name = self._alias(node.lir_id, below)
        made = replace(below, relation=name, arranged=dict(below.arranged))
        if not node.forms.arranged:
            return made
        # Readers of an arrangement read good rows, so the errors are split off here, once, wherever the arrangement is
        # read.
        raw = made
        if made.errors:
            self.divert(name)
            made = self.stripped(made, node.lir_id, "r")
        number = 0
        for form in node.forms.arranged:
            if form.key in below.arranged:
                continue
            made.arranged[form.key] = self.once(
                lambda number=number, form=form: self.arrange(  # type: ignore[misc]
                    node, number, form, raw
                )
            )
            number += 1
        return made

    # --- table functions ---

    def _flat_map(self, node: lir.FlatMap) -> Collection:
        below = self.render(node.input)
        exprs = node.exprs
        arity = len(below.columns)
        if node.input_key is not None:
            form = _form(node.input, node.input_key)
            row = arranged_row(form)
            mfp = MapFilterProject(
                len(row), exprs, (), tuple(range(len(row), len(row) + len(exprs)))
            )
            mfp = over_raw(mfp, form, arity)
            exprs = tuple(
                (*(Column(i) for i in range(arity)), *mfp.expressions)[c] for c in mfp.projection
            )
        everything = MapFilterProject(arity, exprs, (), tuple(range(arity + len(exprs))))
        args = self.apply(node.lir_id, "x", everything, below)
        func = functions.table_func(node.func)
        # A literal stays a literal, because some table functions read its value while they are rendered.
        spelled = [
            Sql(spell.literal(expr.value, expr.typ, self.engine), expr.typ)
            if isinstance(expr, Literal)
            else Sql(col(f"c{arity + i}"), args.columns[arity + i].type)
            for i, expr in enumerate(exprs)
        ]
        args = self._call_errors(args, func, exprs, spelled, node)
        rows = spell.table_rows(func, exprs, spelled, node.output, self.engine)
        good = self.good(args, node.lir_id, "x1")
        items: list[Ast] = [col(f"c{i}") for i in range(arity)]
        items += [named(explode(rows, self.engine), "f"), *(col(name) for name in self.meta)]
        exploded = subquery(select(items, good), "f0")
        many = len(node.output.columns) > 1
        outs: list[Ast] = [col(f"c{i}") for i in range(arity)]
        outs += [
            named(
                s.cast(s.field(col("f"), f"f{i + 1}") if many else col("f"), c.type, self.engine),
                f"c{arity + i}",
            )
            for i, c in enumerate(node.output.columns)
        ]
        outs += [col(name) for name in self.meta]
        part = self.define(node.lir_id, "x2", select(outs, exploded))
        whole = Collection(
            part,
            (*below.columns, *node.output.columns),
            errors=False,
            trace=within(below.trace, arity),
        )
        return self.filtered(node, "", node.mfp_after, whole)

    def _call_errors(
        self,
        args: Collection,
        func: functions.TableFunc,
        exprs: Sequence[Scalar],
        spelled: Sequence[Sql],
        node: lir.FlatMap,
    ) -> Collection:
        """The arguments, with error rows in place of those that the function refuses."""
        if not func.errors:
            return args
        branches: list[tuple[Ast, Ast]] = []
        if args.errors:
            branches.append((s.is_not_null(col(ERROR)), col(ERROR)))
        typ = node.output.columns[0].type
        branches += spell.table_errors(func, exprs, spelled, typ, self.engine)
        items = self.columns(len(args.columns), errors=False)
        status = named(s.case(*branches, otherwise=no_error(self.engine)), ERROR)
        items.insert(len(args.columns), status)
        name = self.define(node.lir_id, "x0", select(items, args.relation))
        return replace(args, relation=name, errors=True)

    # --- small shared pieces ---

    def empty(self, columns: Sequence[ColumnType]) -> exp.Select:
        """A query without rows, with these columns."""
        items: list[Ast] = [
            named(null_of(typ, self.engine), f"c{i}") for i, typ in enumerate(columns)
        ]
        items += [named(big(0, self.engine), name) for name in self.meta]
        made = exp.Select(expressions=items)
        made.set("where", exp.Where(this=s.boolean(value=False)))
        return made

    def literal_rows(self, node: lir.Constant) -> exp.Expression:
        """A constant's rows: c0 …, mz_diff (and mz_error if it is an error)."""
        if node.error is not None:
            items = [named(null_of(t, self.engine), f"c{i}") for i, t in enumerate(node.columns)]
            items.append(named(s.cast(s.text(node.error), TEXT, self.engine), ERROR))
            return exp.Select(expressions=[*items, named(big(1, self.engine), DIFF)])
        branches: list[exp.Expression] = []
        for row, diff in node.rows:
            items = [
                named(spell.value(Literal(v, t.type), (), self.engine), f"c{i}")
                for i, (v, t) in enumerate(zip(row, node.columns, strict=True))
            ]
            branches.append(exp.Select(expressions=[*items, named(big(diff, self.engine), DIFF)]))
        return union_all(branches) if branches else self.empty(node.columns)


def _form(plan: lir.Plan, key: tuple[Scalar, ...]) -> lir.ArrangementForm:
    form = form_by_key(forms_of(plan), key)
    assert form is not None, "a node reads an arrangement that its input does not have"
    return form


def _only(
    mfp: MapFilterProject,
    row: tuple[object, ...] | None,
    form: lir.ArrangementForm,
    columns: Sequence[ColumnType],
) -> MapFilterProject:
    """An MFP over key ++ value rows, of the rows with the key `row` only."""
    if row is None:
        return mfp
    predicates: list[tuple[int, Scalar]] = []
    for i, (expr, value) in enumerate(zip(form.key, row, strict=True)):
        typ = scalar_type(expr, columns)
        literal = Literal(value, typ)  # type: ignore[arg-type]
        predicates.append((mfp.input_arity, Call(f"eq_{typ.kind}", (Column(i), literal), BOOLEAN)))
    return MapFilterProject(
        mfp.input_arity, mfp.expressions, (*predicates, *mfp.predicates), mfp.projection
    )
