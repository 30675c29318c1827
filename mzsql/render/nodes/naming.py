"""Names and fingerprints of a dataflow's state; and the description of a dataflow as rendering looks it up.

Promise: a fingerprint depends only on what an arrangement holds (inputs, expressions, key), not on ids of nodes or
on the dataflow that it is in. Equal fingerprints mean equal contents at equal times.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping

import msgspec

from mzsql.expr.mfp import MapFilterProject
from mzsql.expr.scalar import Column, Literal, Scalar, substitute
from mzsql.lir import plan as lir
from mzsql.lir.forms import arrangement_form
from mzsql.render.nodes.rows import output_types
from mzsql.render.rendered import InputSpec
from mzsql.repr.ids import GlobalId
from mzsql.repr.types import ColumnType

#: The version of mzsql since which stored arrangements mean what they mean now, including accumulators and the division
#: by worker. Arrangements of another format are not reused; those that a later release wrote in the same format are.
ARRANGEMENT_FORMAT = "0.1.0"


#: Prefix of registered names of shards that are not filled yet, or are to be deleted.
FILLING = "filling "


def arrangement_name(fingerprint: str, workers: int, form: str = ARRANGEMENT_FORMAT) -> str:
    """The name under which a replica registers an arrangement: its fingerprint, its number of workers, and its format."""
    return f"{fingerprint}/{workers}/{form}"


def fingerprint_in(name: str) -> str:
    """The fingerprint in an arrangement's name."""
    return name.rsplit("/", 2)[0]


def index_fingerprint(gid: GlobalId, digest: str) -> str:
    """The fingerprint of an index's own arrangement, from a digest of its plan."""
    return f"index {gid} {digest}"


def index_in(fingerprint: str) -> GlobalId | None:
    """The index that a fingerprint belongs to; None for a node's."""
    kind, _, rest = fingerprint.partition(" ")
    return GlobalId(rest.partition(" ")[0]) if kind == "index" and rest else None


class Shape:
    """A dataflow's description, prepared for lookups."""

    def __init__(
        self, desc: lir.DataflowDescription, errors_in: Callable[[GlobalId], bool]
    ) -> None:
        self.desc = desc
        self.sources = {imported.id: imported for imported in desc.source_imports}
        self.objects = {built.id: built for built in desc.objects}
        self.indexes = {imported.id: imported for imported in desc.index_imports}
        self.inputs = tuple(
            InputSpec(s.id, s.typ.columns, errors_in(s.id)) for s in desc.source_imports
        ) + tuple(
            InputSpec(
                i.id,
                arranged_columns(index_form(i), i.typ.columns),
                errors_in(i.id),
                index=True,
                key_arity=len(i.key),
            )
            for i in desc.index_imports
        )
        self.input = {spec.id: spec for spec in self.inputs}
        self._fingerprints: dict[int, str] = {}

    def indexes_on(self, gid: GlobalId) -> list[lir.IndexImport]:
        """The imported indexes on a collection."""
        return [i for i in self.desc.index_imports if i.on_id == gid]

    def fingerprint(self, node: lir.Plan, part: str, scope: Mapping[int, str]) -> str:
        """The fingerprint of a part of a node's state. `scope` has the fingerprints of the Let bindings in scope."""
        return _digest(part, self.content(node, scope))

    def content(self, node: lir.Plan, scope: Mapping[int, str]) -> str:
        """The fingerprint of a node's output."""
        known = self._fingerprints.get(node.lir_id)
        if known is None:
            known = self._fingerprints[node.lir_id] = self._content(node, scope)
        return known

    def _content(self, node: lir.Plan, scope: Mapping[int, str]) -> str:
        match node:
            case lir.Get(id=int() as local, plan=plan):
                return _digest("get", scope[local], _json(plan))
            case lir.Get(id=gid, plan=plan, columns=columns):
                return _digest("get", self._global(gid), _json(plan), _json(columns))  # type: ignore[arg-type]
            case lir.Let(id=local, value=value, body=body):
                bound = self.content(value, scope)
                return self.content(body, {**scope, local: bound})
            case lir.LetRec(ids=ids, values=values, limits=limits, body=body):
                inside = {**scope, **{local: _digest("rec", str(i)) for i, local in enumerate(ids)}}
                kids = [self.content(kid, inside) for kid in (*values, body)]
                return _digest("LetRec", _json(limits), *kids)
            case lir.ArrangeBy(input=below):
                return self.content(below, scope)
            case _:
                kids = [self.content(kid, scope) for kid in lir.children(node)]
                own = {
                    name: getattr(node, name)
                    for name in node.__struct_fields__
                    if name not in ("lir_id", "input", "inputs")
                }
                return _digest(type(node).__name__, _json(own), *kids)

    def _global(self, gid: GlobalId) -> str:
        built = self.objects.get(gid)
        if built is not None:
            return self.content(built.plan, {})
        source = self.sources.get(gid)
        return _digest("import", gid, _json(None if source is None else source.mfp))


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _digest(*parts: str) -> str:
    return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()


def index_form(imported: lir.IndexImport) -> lir.ArrangementForm:
    """The layout of an index's rows."""
    return arrangement_form(imported.key, len(imported.typ.columns))


def arranged_row(form: lir.ArrangementForm) -> tuple[Scalar, ...]:
    """An arrangement's columns, key ++ value, as expressions over the collection's columns."""
    return (*form.key, *(Column(c) for c in form.thinning))


def arranged_columns(
    form: lir.ArrangementForm, columns: tuple[ColumnType, ...]
) -> tuple[ColumnType, ...]:
    """The types of an arrangement's columns, key ++ value."""
    arity = len(columns)
    row = arranged_row(form)
    mfp = MapFilterProject(arity, row, (), tuple(range(arity, arity + len(row))))
    return output_types(mfp, columns)


def over_raw(mfp: MapFilterProject, form: lir.ArrangementForm, arity: int) -> MapFilterProject:
    """An MFP over rows key ++ value, rewritten to be over the collection's own `arity` columns."""
    return substituted(mfp, arranged_row(form), arity)


def substituted(mfp: MapFilterProject, row: tuple[Scalar, ...], arity: int) -> MapFilterProject:
    """An MFP over rows of the expressions `row`, rewritten to be over the `arity` columns that these read."""
    current: list[Scalar] = list(row)
    expressions: list[Scalar] = []
    predicates: list[tuple[int, Scalar]] = []
    pending = sorted(mfp.predicates, key=lambda p: p[0])

    def take_predicates(position: int) -> None:
        while pending and pending[0][0] <= position:
            _, predicate = pending.pop(0)
            predicates.append((arity + len(expressions), substitute(predicate, current)))

    take_predicates(mfp.input_arity)
    for index, expr in enumerate(mfp.expressions):
        new = substitute(expr, current)
        if isinstance(new, Column | Literal):
            current.append(new)
        else:
            expressions.append(new)
            current.append(Column(arity + len(expressions) - 1))
        take_predicates(mfp.input_arity + index + 1)
    projection: list[int] = []
    for c in mfp.projection:
        output = current[c]
        if not isinstance(output, Column):
            expressions.append(output)
            output = Column(arity + len(expressions) - 1)
        projection.append(output.index)
    return MapFilterProject(arity, tuple(expressions), tuple(predicates), tuple(projection))
