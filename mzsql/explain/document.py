"""The complete text of an EXPLAIN: plans, sources, used indexes, target cluster, notices.

Promise: the parts are in that order, separated by one blank line, with one newline at the end, as in Materialize.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mzsql.explain.config import ExplainConfig, Humanizer
from mzsql.explain.dot import dot
from mzsql.explain.lines import Lines
from mzsql.explain.notices import Notice
from mzsql.explain.physical import PhysicalPrinter
from mzsql.explain.pushed import decidable
from mzsql.explain.scalars import ScalarPrinter
from mzsql.expr.dataflow import IndexImport
from mzsql.expr.mfp import MapFilterProject
from mzsql.expr.relation import RowSetFinishing
from mzsql.lir import plan as lir
from mzsql.repr.depth import deep
from mzsql.repr.ids import GlobalId


class Frame(msgspec.Struct, frozen=True):
    """Everything around the plans.

    Attributes:
        cluster: the target cluster; None: omitted.
        notices: the notices.
        timing: a line with the planning time; None where it was not requested.
        as_dot: whether to print a graph, which has only the plans.
    """

    cluster: str | None = "quickstart"
    notices: tuple[Notice, ...] = ()
    timing: str | None = None
    as_dot: bool = False


def explain_lir(
    desc: lir.DataflowDescription,
    finishing: RowSetFinishing | None,
    humanizer: Humanizer,
    config: ExplainConfig,
    frame: Frame | None = None,
) -> str:
    """EXPLAIN PHYSICAL PLAN AS TEXT or DOT; ``finishing`` is a query's."""
    plans: list[tuple[str, Lines]] = []
    with deep():
        for obj in reversed(desc.objects):
            is_root = obj is desc.objects[-1]
            header = plan_header(
                obj.id, is_root, isinstance(desc.export, lir.PeekExport), humanizer
            )
            printer = PhysicalPrinter(humanizer, config)
            body = printer.plan(obj.plan, finishing if is_root else None, obj.typ.arity)
            plans.append((header, body))
        sources = source_blocks([(s.id, s.mfp) for s in desc.source_imports], humanizer, config)
    return assemble(
        plans,
        sources=sources,
        used_indexes=desc.index_imports,
        humanizer=humanizer,
        frame=frame or Frame(),
    )


def plan_header(gid: GlobalId, is_root: bool, is_peek: bool, humanizer: Humanizer) -> str:
    """The header line of a plan."""
    return "Explained Query:" if is_root and is_peek else f"{humanizer.name(gid)}:"


def source_blocks(
    sources: Sequence[tuple[GlobalId, MapFilterProject | None]],
    humanizer: Humanizer,
    config: ExplainConfig,
    *,
    named: bool = False,
) -> str:
    """The Source blocks: each source with the MFP pushed into its read; ``named``: with column names."""
    lines = Lines()
    for gid, mfp in sources:
        names = humanizer.column_names(gid) if named else None
        printer = ScalarPrinter(redacted=config.redacted, names=names or ())
        if mfp is not None and mfp.is_identity:
            continue
        lines.add(0, f"Source {humanizer.name(gid)}")
        for line in () if mfp is None else printer.mfp_lines(mfp):
            lines.add(1, line)
        found = decidable(mfp) if mfp is not None and config.filter_pushdown else []
        if found:
            lines.add(1, f"pushdown=({' AND '.join(printer.scalar(pred) for pred in found)})")
    return lines.text()


def assemble(
    plans: Sequence[tuple[str, Lines]],
    *,
    humanizer: Humanizer,
    frame: Frame,
    sources: str = "",
    used_indexes: Sequence[IndexImport] = (),
) -> str:
    """The whole text: plans with their headers (or without), and what they read."""
    if frame.as_dot:
        return dot(plans)
    shown = (f"{header}\n{body.text()}" if header else body.text() for header, body in plans)
    parts = ["\n".join(shown)]
    if sources:
        parts.append(sources)
    if used_indexes:
        lines = Lines()
        lines.add(0, "Used Indexes:")
        for index in used_indexes:
            lines.add(1, f"- {humanizer.name(index.id)} ({', '.join(index.usages)})")
        parts.append(lines.text())
    if frame.cluster is not None:
        parts.append(f"Target cluster: {frame.cluster}\n")
    if frame.notices:
        lines = Lines()
        lines.add(0, "Notices:")
        for notice in frame.notices:
            lines.add(1, f"- Notice: {notice.message}")
            if notice.hint:
                lines.add(2, f"Hint: {notice.hint}")
        parts.append(lines.text())
    if frame.timing is not None:
        parts.append(f"{frame.timing}\n")
    return "\n".join(parts)
