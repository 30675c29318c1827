"""EXPLAIN of a query that is answered without a dataflow (Materialize's "fast path")."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mzsql.explain import json_scalars as js
from mzsql.explain import scalars, variants
from mzsql.explain.config import ExplainConfig, Humanizer
from mzsql.explain.document import Frame, assemble, source_blocks
from mzsql.explain.lines import Lines
from mzsql.explain.mir import MirPrinter, lookup, read_index, short
from mzsql.explain.physical import finish
from mzsql.expr import relation as mir
from mzsql.expr import scalar as sc
from mzsql.expr.dataflow import IndexImport
from mzsql.expr.mfp import MapFilterProject
from mzsql.expr.relation import RowSetFinishing
from mzsql.lir.forms import arrangement_form
from mzsql.repr.types import ColumnType
from mzsql.transform.fast_path import ConstantPlan, FastPathPlan, PeekIndexPlan, PeekPersistPlan
from mzsql.transform.fold_constants import constant


def explain_fast_path(
    plan: FastPathPlan,
    finishing: RowSetFinishing | None,
    humanizer: Humanizer,
    config: ExplainConfig,
    frame: Frame | None = None,
) -> str:
    """EXPLAIN OPTIMIZED or PHYSICAL PLAN AS TEXT or DOT of a fast path."""
    used: list[IndexImport] = []
    sources = ""
    if isinstance(plan, ConstantPlan):
        rel = _constant(plan)
        # A constant's rows are printed without attributes, as an index's are.
        plain = ExplainConfig(redacted=config.redacted)
        body = MirPrinter(humanizer, plain).plan(rel, finishing, 1)
    else:
        body = _peek(plan, finishing, humanizer, config)
    match plan:
        case PeekIndexPlan(index_id=index, on_id=on, key=key, rows=rows, typ=typ):
            usage = "*** full scan ***" if rows is None else "lookup"
            usages = (usage,)
            if rows is None and _is_first_rows(finishing):
                usages = ("fast path limit",)
            used.append(IndexImport(index, on, key, typ, usages))
        case PeekPersistPlan(id=gid):
            sources = source_blocks([(gid, None)], humanizer, config)
        case _:
            pass
    return assemble(
        [("Explained Query (fast path):", body)],
        sources=sources,
        used_indexes=used,
        humanizer=humanizer,
        frame=frame or Frame(),
    )


def _is_first_rows(finishing: RowSetFinishing | None) -> bool:
    """Whether a LIMIT without ORDER BY accepts any rows."""
    return finishing is not None and finishing.limit is not None and not finishing.order_by


def _peek(
    plan: PeekIndexPlan | PeekPersistPlan,
    finishing: RowSetFinishing | None,
    humanizer: Humanizer,
    config: ExplainConfig,
) -> Lines:
    printer = scalars.ScalarPrinter(redacted=config.redacted)
    lines = Lines()
    level = 1
    mfp, names = _as_stored(plan, humanizer)
    if finishing is not None and not finishing.is_trivial(mfp.output_arity):
        lines.add(level, finish(finishing), node=True)
        level += 1
    match plan:
        case PeekIndexPlan(rows=rows) if rows is not None:
            columns = [ColumnType(sc.scalar_type(e, plan.typ.columns)) for e in plan.key]
            usage = lookup([printer.row(row, columns) for row in rows])
            leaf = read_index(
                humanizer.name(plan.on_id), short(humanizer.name(plan.index_id)), usage
            )
        case PeekIndexPlan():
            leaf = read_index(
                humanizer.name(plan.on_id),
                short(humanizer.name(plan.index_id)),
                "*** full scan ***",
            )
        case PeekPersistPlan():
            leaf = f"PeekPersist {humanizer.name(plan.id)}"
    named = printer.naming(names) if config.humanized_expressions else printer
    for text in mfp_operators(mfp, named):
        lines.add(level, text, node=True)
        level += 1
    lines.add(level, leaf, node=True)
    return lines


def _as_stored(
    plan: PeekIndexPlan | PeekPersistPlan, humanizer: Humanizer
) -> tuple[MapFilterProject, Sequence[str]]:
    """The MFP over the rows that are read, and the names of their columns.

    An index's rows are its key, then the columns not in the key; a lookup's rows have the looked-up key appended.
    """
    if isinstance(plan, PeekPersistPlan):
        return plan.mfp, humanizer.column_names(plan.id) or ()
    form = arrangement_form(plan.key, plan.typ.arity)
    width = len(form.key) + len(form.thinning)
    names = [""] * width
    for column, name in enumerate(humanizer.column_names(plan.on_id) or ()):
        names[form.permutation[column]] = name
    place = dict(enumerate(form.permutation))
    return _moved(plan.mfp, place, width + (0 if plan.rows is None else len(plan.key))), names


def fast_path_node(plan: FastPathPlan, humanizer: Humanizer) -> js.Node:
    """EXPLAIN OPTIMIZED or PHYSICAL PLAN AS JSON of a fast path: the only plan of a query that imports nothing."""
    plans = [{"id": "Explained Query (fast path)", "plan": _variant(plan, humanizer)}]
    return {"plans": plans, "sources": []}


def _variant(plan: FastPathPlan, humanizer: Humanizer) -> js.Node:
    match plan:
        case ConstantPlan(error=error, typ=typ):
            rows = _constant(plan).rows
            shown = [[js.packed(row, typ.columns), diff] for row, diff in rows]
            data = {"Ok": shown} if error is None else {"Err": variants.error(error)}
            return {"Constant": [data, variants.relation_type(typ)]}
        case PeekIndexPlan(on_id=on, index_id=index, key=key, rows=found, typ=typ):
            columns = [ColumnType(sc.scalar_type(e, typ.columns)) for e in key]
            looked_up = None if found is None else [js.packed(row, columns) for row in found]
            mfp, _ = _as_stored(plan, humanizer)
            read = [js.global_id(on), js.global_id(index), looked_up, {"mfp": js.mfp(mfp)}]
            return {"PeekExisting": read}
        case PeekPersistPlan(id=gid, mfp=mfp):
            return {"PeekPersist": [js.global_id(gid), {"mfp": js.mfp(mfp)}]}


def _constant(plan: ConstantPlan) -> mir.Constant:
    """A constant answer as a relation, equal rows added up: a query that spells its rows out is planned as it spells them."""
    return msgspec.structs.replace(constant(plan.rows, plan.typ), error=plan.error)


def mfp_operators(mfp: MapFilterProject, printer: scalars.ScalarPrinter) -> list[str]:
    """An MFP as operators, outermost first: Project, Filter, Map."""
    texts: list[str] = []
    if mfp.projection != tuple(range(mfp.input_arity + len(mfp.expressions))):
        texts.append(f"Project ({printer.columns(mfp.projection)})")
    if mfp.predicates:
        texts.append(f"Filter {' AND '.join(printer.scalar(p) for _, p in mfp.predicates)}")
    if mfp.expressions:
        texts.append(f"Map ({printer.scalars(mfp.expressions)})")
    return texts


def _moved(mfp: MapFilterProject, place: dict[int, int], width: int) -> MapFilterProject:
    """The MFP over rows of ``width`` columns in which column i is at ``place[i]``."""
    moved = dict(place)
    for offset in range(len(mfp.expressions)):
        moved[mfp.input_arity + offset] = width + offset
    return msgspec.structs.replace(
        mfp,
        input_arity=width,
        expressions=tuple(sc.permute(e, moved) for e in mfp.expressions),
        predicates=tuple((at, sc.permute(p, moved)) for at, p in mfp.predicates),
        projection=tuple(moved[column] for column in mfp.projection),
    )
