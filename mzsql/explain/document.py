"""The document that EXPLAIN hands out: plans, sources, used indexes, target cluster, notices (reference explain-format 2).

Promise: parts in that order, one blank line between them, exactly one newline at the end.
"""

from __future__ import annotations

from collections.abc import Sequence

from mzsql.explain.config import ExplainConfig, Humanizer
from mzsql.explain.lines import Lines
from mzsql.explain.notices import Notice
from mzsql.explain.physical import PhysicalPrinter
from mzsql.explain.scalars import ScalarPrinter
from mzsql.expr.dataflow import IndexImport
from mzsql.expr.mfp import MapFilterProject
from mzsql.expr.relation import RowSetFinishing
from mzsql.frontend.depth import deep
from mzsql.lir import plan as lir
from mzsql.repr.ids import GlobalId


def explain_lir(
    desc: lir.DataflowDescription,
    finishing: RowSetFinishing | None,
    humanizer: Humanizer,
    config: ExplainConfig,
    *,
    cluster: str | None = "quickstart",
    notices: Sequence[Notice] = (),
) -> str:
    """EXPLAIN PHYSICAL PLAN AS TEXT. `finishing` of a query; `cluster` None leaves out the target cluster."""
    plans: list[str] = []
    with deep():
        for obj in reversed(desc.objects):
            is_root = obj is desc.objects[-1]
            header = plan_header(
                obj.id, is_root, isinstance(desc.export, lir.PeekExport), humanizer
            )
            printer = PhysicalPrinter(humanizer, config)
            body = printer.plan(obj.plan, finishing if is_root else None, obj.typ.arity)
            plans.append(f"{header}\n{body}")
        sources = source_blocks([(s.id, s.mfp) for s in desc.source_imports], humanizer, config)
    return assemble(
        plans,
        sources=sources,
        used_indexes=desc.index_imports,
        humanizer=humanizer,
        cluster=cluster,
        notices=() if config.no_notices else notices,
    )


def plan_header(gid: GlobalId, is_root: bool, is_peek: bool, humanizer: Humanizer) -> str:
    """The line over a plan."""
    return "Explained Query:" if is_root and is_peek else f"{humanizer.name(gid)}:"


def source_blocks(
    sources: Sequence[tuple[GlobalId, MapFilterProject | None]],
    humanizer: Humanizer,
    config: ExplainConfig,
    *,
    named: bool = False,
) -> str:
    """The Source blocks, each source with what is pushed into its read; `named`: with the names of its columns."""
    lines = Lines()
    for gid, mfp in sources:
        names = humanizer.column_names(gid) if named else None
        printer = ScalarPrinter(redacted=config.redacted, names=names or ())
        if mfp is not None and mfp.is_identity:
            continue
        lines.add(0, f"Source {humanizer.name(gid)}")
        for line in () if mfp is None else printer.mfp_lines(mfp):
            lines.add(1, line)
    return lines.text()


def assemble(
    plans: Sequence[str],
    *,
    sources: str,
    used_indexes: Sequence[IndexImport],
    humanizer: Humanizer,
    cluster: str | None,
    notices: Sequence[Notice] = (),
) -> str:
    """Put the parts together."""
    parts = ["\n".join(plans)]
    if sources:
        parts.append(sources)
    if used_indexes:
        lines = Lines()
        lines.add(0, "Used Indexes:")
        for index in used_indexes:
            lines.add(1, f"- {humanizer.name(index.id)} ({', '.join(index.usages)})")
        parts.append(lines.text())
    if cluster is not None:
        parts.append(f"Target cluster: {cluster}\n")
    if notices:
        lines = Lines()
        lines.add(0, "Notices:")
        for notice in notices:
            lines.add(1, f"- Notice: {notice.message}")
            if notice.hint:
                lines.add(2, f"Hint: {notice.hint}")
        parts.append(lines.text())
    return "\n".join(parts)
