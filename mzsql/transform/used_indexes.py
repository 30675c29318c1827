"""Which indexes and shards a dataflow imports: annotates every Get with its access, and indexes with their usages.

Promise: afterwards a Get of a catalog object says whether it reads the shard or which indexes, and exactly these are
imported. A full scan uses an index that is used anyway, else one on a unique key, else the first one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from mzsql.expr import relation as mir
from mzsql.expr import scalar as sc
from mzsql.expr.dataflow import IndexExport, IndexImport, MirDataflow, MirSource
from mzsql.repr.ids import GlobalId, sort_key
from mzsql.transform.context import IndexDesc, OptimizerContext
from mzsql.transform.visit import replace_inputs

FULL_SCAN = "*** full scan ***"
DELTA_FIRST = "delta join 1st input (full scan)"
DELTA_LOOKUP = "delta join lookup"
DIFFERENTIAL = "differential join"
LOOKUP = "lookup"
PLAN_ROOT = "plan root (no new arrangement)"
INDEX_EXPORT = "index export"

Key = tuple[sc.Scalar, ...]
#: How a relation is read: through an arrangement by a key (None: through any, by a scan), and for which usage.
Ask = tuple[Key | None, str]
#: The ways in which each object is read.
Requests = dict[GlobalId, list[Ask]]
_SCAN: Ask = (None, FULL_SCAN)
#: The order in which an index's usages are listed.
_ORDER = (
    *(FULL_SCAN, PLAN_ROOT, LOOKUP, DIFFERENTIAL, DELTA_LOOKUP, DELTA_FIRST),
    INDEX_EXPORT,
)


def annotate_imports(
    df: MirDataflow, ctx: OptimizerContext, readable: Mapping[GlobalId, MirSource]
) -> MirDataflow:
    """Choose indexes, annotate Gets, and import exactly what is read; `readable` is everything that could be read."""
    built = {obj.id for obj in df.objects}
    requests: Requests = {}

    def note(get: mir.Get, asked: Sequence[Ask]) -> mir.Relation:
        assert not isinstance(get.id, int)
        if get.id not in built:
            requests.setdefault(get.id, []).extend(asked)
        return get

    for obj in df.objects:
        _Readers(note).visit(obj.plan, ())
    chosen = {
        gid: _choose(ctx.indexes(gid), asked, readable[gid], df) for gid, asked in requests.items()
    }

    def access(get: mir.Get, asked: Sequence[Ask]) -> mir.Relation:
        assert not isinstance(get.id, int)
        if get.id in built:
            return get
        return msgspec.structs.replace(get, access=_access(chosen[get.id], asked))

    objects = tuple(
        msgspec.structs.replace(obj, plan=_Readers(access).visit(obj.plan, ()))
        for obj in df.objects
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


_Chosen = list[tuple[IndexDesc, list[str]]]


def _access(chosen: _Chosen, asked: Sequence[Ask]) -> mir.AccessPersist | mir.AccessIndex:
    """What one Get reads: for each way in which it is read the index chosen for that."""
    if not chosen:
        return mir.AccessPersist()
    uses: dict[GlobalId, list[str]] = {}
    for key, wanted in asked:
        index = next((i for i, usages in chosen if i.key == key and wanted in usages), None)
        usage = FULL_SCAN if index is None else wanted
        if index is None:
            index = next(i for i, usages in chosen if FULL_SCAN in usages)
        have = uses.setdefault(index.id, [])
        if usage not in have:
            have.append(usage)
    return mir.AccessIndex(
        tuple(
            (gid, ", ".join(sorted(uses[gid], key=_ORDER.index)))
            for gid in sorted(uses, key=sort_key)
        )
    )


# --- what is asked for --------------------------------------------------------------------------


class _Readers:
    """Visits the Gets of catalog objects, and replaces each by what `leaf` returns for it and the ways in which its
    readers use it.
    """

    def __init__(self, leaf: Callable[[mir.Get, Sequence[Ask]], mir.Relation]) -> None:
        self._leaf = leaf
        self._locals: dict[int, list[Ask]] = {}

    def visit(self, rel: mir.Relation, asked: Sequence[Ask]) -> mir.Relation:
        """The relation with its Gets replaced; `asked` are the ways in which it, or an arrangement of it, is used."""
        match rel:
            case mir.Let(id=local):
                body = self.visit(rel.body, asked)
                value = self.visit(rel.value, self._locals.get(local, ()))
                return mir.Let(local, value, body)
            case mir.Get(id=gid) if isinstance(gid, int):
                have = self._locals.setdefault(gid, [])
                have.extend(ask for ask in asked or (_SCAN,) if ask not in have)
                return rel
            case mir.Get():
                return self._leaf(rel, asked or (_SCAN,))
            case mir.ArrangeBy(keys=keys):
                by_key = [ask for ask in asked if ask[0] is not None]
                inner = by_key or [(key, PLAN_ROOT) for key in keys]
                return mir.ArrangeBy(
                    self.visit(rel.input, inner if _is_read(rel.input) else ()), keys
                )
            case mir.Join():
                uses = _of_join(rel)
                parts = [self.visit(part, uses[i]) for i, part in enumerate(rel.inputs)]
                return mir.with_inputs(rel, parts)
            case _:
                kids = mir.inputs(rel)
                return replace_inputs(rel, kids, [self.visit(kid, ()) for kid in kids])


def _is_read(rel: mir.Relation) -> bool:
    return isinstance(rel, mir.Get)


def _of_join(join: mir.Join) -> list[list[Ask]]:
    """How each input's arrangements are used."""
    usage: list[dict[Key, str]] = [{} for _ in join.inputs]
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
                # Its own updates are read by scanning one of its arrangements.
                usage[0][min(usage[0], key=repr)] = DELTA_FIRST
        case mir.IndexedFilter(key=key):
            usage[0][key] = LOOKUP
        case _:
            pass
    return [list(uses.items()) for uses in usage]


# --- what is chosen -----------------------------------------------------------------------------


def _choose(
    indexes: Sequence[IndexDesc], asked: Sequence[Ask], source: MirSource, df: MirDataflow
) -> _Chosen:
    """The indexes to import, each with its usages; empty if the shard is read."""
    if not indexes:
        return []
    by_key: dict[Key, IndexDesc] = {}
    youngest: dict[Key, IndexDesc] = {}
    for index in indexes:
        by_key.setdefault(index.key, index)
        youngest[index.key] = index
    chosen: dict[GlobalId, tuple[IndexDesc, list[str]]] = {}
    scanned = False
    for key, usage in asked:
        # `literal_constraints` has already chosen the youngest index for lookups.
        of = youngest if usage == LOOKUP else by_key
        found = of.get(key) if key is not None else None
        if found is None:
            scanned = True
            continue
        have = chosen.setdefault(found.id, (found, []))[1]
        if usage not in have:
            have.append(usage)
    if scanned:
        index = _scan_index(indexes, [entry[0] for entry in chosen.values()], source)
        have = chosen.setdefault(index.id, (index, []))[1]
        if FULL_SCAN not in have:
            have.append(FULL_SCAN)
    if isinstance(df.export, IndexExport) and df.export.on_id == source.id:
        for _, usages in chosen.values():
            usages.append(INDEX_EXPORT)
    for _, usages in chosen.values():
        usages.sort(key=_ORDER.index)
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
