"""Which imports a dataflow really has: every Get gets its access, indexes their usages (reference facts 6.7).

Promise: after it, a Get of a catalog object says whether it reads the shard or which indexes; exactly these are imported. A full scan is
redirected to an index that is used anyway, else goes to one on a unique key, else to the first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from mzsql.expr import relation as mir
from mzsql.expr import scalar as sc
from mzsql.expr.dataflow import IndexExport, IndexImport, MirDataflow, MirSource
from mzsql.repr.ids import GlobalId, sort_key
from mzsql.transform.context import IndexDesc, OptimizerContext
from mzsql.transform.visit import rewrite

FULL_SCAN = "*** full scan ***"
DELTA_FIRST = "delta join 1st input (full scan)"
DELTA_LOOKUP = "delta join lookup"
DIFFERENTIAL = "differential join"
LOOKUP = "lookup"
INDEX_EXPORT = "index export"

Key = tuple[sc.Scalar, ...]
#: For each object the keys by which it is asked for (None: any way to scan it), and how each is used.
Requests = dict[GlobalId, dict[Key | None, list[str]]]


def annotate_imports(
    df: MirDataflow, ctx: OptimizerContext, readable: Mapping[GlobalId, MirSource]
) -> MirDataflow:
    """Choose indexes, annotate Gets, and import exactly what is read; `readable`: everything that could be."""
    built = {obj.id for obj in df.objects}
    requests: Requests = {}
    for obj in df.objects:
        _collect(obj.plan, requests)
    chosen: dict[GlobalId, list[tuple[IndexDesc, list[str]]]] = {}
    for gid, asked in requests.items():
        if gid not in built:
            chosen[gid] = _choose(ctx.indexes(gid), asked, readable[gid], df)

    def access(node: mir.Relation) -> mir.Relation:
        if not isinstance(node, mir.Get) or isinstance(node.id, int) or node.id in built:
            return node
        uses = chosen[node.id]
        if not uses:
            return msgspec.structs.replace(node, access=mir.AccessPersist())
        pairs = tuple((index.id, usages[0]) for index, usages in uses)
        return msgspec.structs.replace(node, access=mir.AccessIndex(pairs))

    objects = tuple(
        msgspec.structs.replace(obj, plan=rewrite(obj.plan, access)) for obj in df.objects
    )
    indexes = tuple(
        IndexImport(index.id, gid, index.key, readable[gid].typ, tuple(usages))
        for gid, uses in chosen.items()
        for index, usages in uses
    )
    indexes = tuple(sorted(indexes, key=lambda index: sort_key(index.id)))
    read = sorted((gid for gid, uses in chosen.items() if not uses), key=sort_key)
    sources = tuple(readable[gid] for gid in read)
    return msgspec.structs.replace(
        df, source_imports=sources, index_imports=indexes, objects=objects
    )


# --- what is asked for --------------------------------------------------------------------------


def _collect(plan: mir.Relation, requests: Requests) -> None:
    """Note for every Get of a catalog object how its parents use it."""
    locals_: dict[int, mir.Relation] = {}
    for node in mir.walk(plan):
        if isinstance(node, mir.Let):
            locals_[node.id] = node.value
    seen: set[int] = set()  # Gets that a join accounts for, by identity
    for node in mir.walk(plan):
        if isinstance(node, mir.Join):
            _collect_join(node, requests, seen, locals_)
    for node in mir.walk(plan):
        match node:
            case mir.ArrangeBy(input=mir.Get(id=gid) as get, keys=keys):
                if not isinstance(gid, int) and id(get) not in seen:
                    seen.add(id(get))
                    for key in keys:
                        _ask(requests, gid, key, None)
            case mir.Get(id=gid) if not isinstance(gid, int) and id(node) not in seen:
                _ask(requests, gid, None, FULL_SCAN)
            case _:
                pass


def _ask(requests: Requests, gid: GlobalId, key: Key | None, usage: str | None) -> None:
    usages = requests.setdefault(gid, {}).setdefault(key, [])
    if usage is not None and usage not in usages:
        usages.append(usage)


def _collect_join(
    join: mir.Join, requests: Requests, seen: set[int], locals_: Mapping[int, mir.Relation]
) -> None:
    usage: dict[int, dict[Key, str]] = {i: {} for i in range(len(join.inputs))}
    match join.implementation:
        case mir.Differential(start=start, start_key=start_key, order=order):
            if start_key is not None:
                usage[start][start_key] = DIFFERENTIAL
            for step in order:
                usage[step.input][step.key] = DIFFERENTIAL
        case mir.DeltaQuery(orders=orders):
            for path in orders:
                for step in path:
                    usage[step.input][step.key] = DELTA_LOOKUP
            if usage[0]:
                # The first input's own changes are found by scanning one of its arrangements.
                first = min(usage[0], key=repr)
                if len(usage[0]) == 1 or usage[0][first] == DELTA_LOOKUP:
                    usage[0][first] = DELTA_FIRST
        case mir.IndexedFilter(key=key):
            usage[0][key] = LOOKUP
        case _:
            pass
    for position, part in enumerate(join.inputs):
        base = part
        if isinstance(base, mir.Get) and isinstance(base.id, int):
            base = locals_.get(base.id, base)
        if isinstance(base, mir.ArrangeBy):
            base = base.input
        if isinstance(base, mir.Get) and not isinstance(base.id, int):
            seen.add(id(base))
            for key, how in usage[position].items():
                _ask(requests, base.id, key, how)
            if not usage[position]:
                _ask(requests, base.id, None, FULL_SCAN)


# --- what is chosen -----------------------------------------------------------------------------


def _choose(
    indexes: Sequence[IndexDesc],
    asked: Mapping[Key | None, list[str]],
    source: MirSource,
    df: MirDataflow,
) -> list[tuple[IndexDesc, list[str]]]:
    """The indexes to import, each with its usages; none: the shard is read."""
    if not indexes:
        return []
    by_key: dict[Key, IndexDesc] = {}
    for index in indexes:
        by_key.setdefault(index.key, index)
    chosen: dict[GlobalId, tuple[IndexDesc, list[str]]] = {}
    scans: list[str] = []
    for key, usages in asked.items():
        index_by_key = by_key.get(key) if key is not None else None
        if index_by_key is not None:
            have = chosen.setdefault(index_by_key.id, (index_by_key, []))[1]
            have.extend(u for u in usages if u not in have)
        else:
            scans.append(FULL_SCAN)
    if scans:
        index = _scan_index(indexes, [entry[0] for entry in chosen.values()], source)
        have = chosen.setdefault(index.id, (index, []))[1]
        if FULL_SCAN not in have:
            have.append(FULL_SCAN)
    if isinstance(df.export, IndexExport) and df.export.on_id == source.id:
        for _, usages in chosen.values():
            usages.append(INDEX_EXPORT)
    return list(chosen.values())


def _scan_index(
    indexes: Sequence[IndexDesc], used: Sequence[IndexDesc], source: MirSource
) -> IndexDesc:
    if used:
        return used[0]
    for index in indexes:
        columns = {expr.index for expr in index.key if isinstance(expr, sc.Column)}
        if any(set(key) <= columns for key in source.typ.keys):
            return index
    return indexes[0]
