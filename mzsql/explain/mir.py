"""EXPLAIN DECORRELATED, LOCALLY OPTIMIZED and OPTIMIZED PLAN as text: MIR.

Promise: one line per operator, children indented below; requested annotations (arity, types, keys) at the end of the
line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mzsql.explain import constants, scalars
from mzsql.explain.column_names import ColumnNames
from mzsql.explain.config import ExplainConfig, Humanizer
from mzsql.explain.document import Frame, assemble, plan_header, source_blocks
from mzsql.explain.lines import Lines
from mzsql.explain.physical import finish, recursion_limit
from mzsql.expr import functions
from mzsql.expr import relation as mir
from mzsql.expr.canonical import as_stored
from mzsql.expr.dataflow import MirDataflow, PeekExport
from mzsql.expr.mfp import MapFilterProject
from mzsql.expr.relation import RowSetFinishing
from mzsql.expr.typing import relation_type
from mzsql.repr.depth import deep
from mzsql.repr.ids import GlobalId
from mzsql.transform.attributes import Derivation
from mzsql.transform.cardinality import Statistics, no_statistics, shown
from mzsql.transform.equivalences import Classes, Equivalences
from mzsql.transform.predicate_pushdown import filters_over_input

#: At most so many rows of a constant are shown.
MAX_ROWS = 20


class MirPrinter:
    """Prints relations; ``built`` are objects of the same dataflow."""

    def __init__(
        self,
        humanizer: Humanizer,
        config: ExplainConfig,
        built: frozenset[GlobalId] = frozenset(),
        *,
        as_written: bool = False,
        statistics: Statistics = no_statistics,
    ) -> None:
        self._humanizer = humanizer
        self._config = config
        self._scalars = scalars.ScalarPrinter(redacted=config.redacted, as_written=as_written)
        self._as_written = as_written
        self._out = Lines()
        self._built = built
        self._derived = Derivation(statistics=statistics)
        self._equal = Equivalences() if config.equivalences else None
        self._is_raw = config.raw or config.raw_syntax
        self._called = ColumnNames(humanizer)
        self._names = self._called if config.humanized_expressions else None

    def plan(self, rel: mir.Relation, finishing: RowSetFinishing | None, level: int) -> Lines:
        """The body of a plan."""
        if finishing is not None and not finishing.is_trivial(mir.arity(rel)):
            self._out.add(level, finish(finishing, self._over(rel)), node=True)
            level += 1
        self._node(rel, level)
        return self._out

    def _annotations(self, rel: mir.Relation) -> str:
        parts: list[str] = []
        config = self._config
        if config.subtree_size:
            parts.append(f"subtree_size: {sum(1 for _ in mir.walk(rel))}")
        if config.non_negative:
            sign = self._derived.of(rel).non_negative
            parts.append(f"non_negative: {'true' if sign else 'false'}")
        if config.types or config.keys:
            typ = relation_type(rel, self._derived.types)
        if config.arity:
            parts.append(f"arity: {mir.arity(rel)}")
        if config.types:
            parts.append(f'types: "({", ".join(str(column) for column in typ.columns)})"')
        if config.keys:
            keys = ", ".join(f"[{', '.join(str(c) for c in key)}]" for key in typ.keys)
            parts.append(f'keys: "({keys})"')
        if config.cardinality:
            parts.append(f'cardinality: "{shown(self._derived.cardinality(rel))}"')
        if config.column_names:
            names = (name or f"#{i}" for i, name in enumerate(self._called.of(rel)))
            parts.append(f'column_names: "({", ".join(names)})"')
        if self._equal is not None:
            parts.append(f'equivs: "{self._classes(rel, self._equal.of(rel))}"')
        return f" // {{ {', '.join(parts)} }}" if parts else ""

    def _classes(self, rel: mir.Relation, classes: Classes) -> str:
        if classes is None:
            return "<empty collection>"
        print_ = self._over(rel)
        shown = ", ".join(f"[{', '.join(map(print_.scalar, cls))}]" for cls in classes)
        return f"[{shown}]".replace("\\", "\\\\").replace('"', '\\"')

    def _head(self, level: int, text: str, rel: mir.Relation) -> None:
        self._out.add(level, f"{text}{self._annotations(rel)}", node=True)

    def _node(self, rel: mir.Relation, level: int) -> None:
        match rel:
            case mir.Let():
                self._let(rel, level)
                return
            case mir.LetRec():
                self._let_rec(rel, level)
                return
            case mir.Constant():
                self._constant(rel, level)
                return
            case mir.Get():
                self._head(level, self._get(rel), rel)
                return
            case mir.Join():
                self._join(rel, level)
                if isinstance(rel.implementation, mir.IndexedFilter):
                    # The whole ArrangeBy is one line: the index and the keys.
                    return
            case _:
                self._head(level, self._operator(rel), rel)
        for part in mir.inputs(rel):
            self._node(part, level + 1)

    def _over(self, rel: mir.Relation) -> scalars.ScalarPrinter:
        """A printer for expressions over the columns of ``rel``."""
        return self._scalars if self._names is None else self._scalars.naming(self._names.of(rel))

    def _operator(self, rel: mir.Relation) -> str:
        # As in Materialize, Project's columns have the names of its outputs at those positions.
        named = mir.inputs(rel)[:1] if not isinstance(rel, mir.Project | mir.Map) else (rel,)
        print_ = self._over(named[0]) if named else self._scalars
        match rel:
            case mir.Project(outputs=outputs):
                return f"Project ({print_.columns(outputs)})"
            case mir.Map(scalars=exprs):
                return f"Map ({print_.scalars(exprs)})"
            case mir.FlatMap(func=mir.WRAP, exprs=exprs, output=output):
                return f"FlatMap wrap{output.arity}({print_.scalars(exprs)})"
            case mir.FlatMap(func=func, exprs=exprs):
                table = functions.table_func(func)
                name = table.key if table.name == "unnest" else table.name
                return f"FlatMap {name}({print_.scalars(exprs)})"
            case mir.Filter(predicates=predicates):
                preds = predicates if self._as_written else scalars.shown(predicates)
                return f"Filter {' AND '.join(map(print_.scalar, preds))}"
            case mir.Reduce():
                return self._reduce(rel, print_)
            case mir.TopK():
                return self._top_k(rel, print_)
            case mir.Negate():
                return "Negate"
            case mir.Threshold():
                return "Threshold"
            case mir.Union():
                return "Union"
            case mir.ArrangeBy(keys=keys):
                return f"ArrangeBy keys=[{', '.join(print_.key(key) for key in keys)}]"
            case _:
                return type(rel).__name__

    def _reduce(self, rel: mir.Reduce, print_: scalars.ScalarPrinter) -> str:
        key = print_.listed(rel.group_key)
        if not rel.aggregates and self._is_raw:
            text = f"Reduce group_by=[{key}]"
        elif not rel.aggregates:
            text = f"Distinct project=[{key}]"
        else:
            aggregates = ", ".join(print_.aggregate(a) for a in rel.aggregates)
            group = f" group_by=[{key}]" if rel.group_key else ""
            text = f"Reduce{group} aggregates=[{aggregates}]"
        if rel.expected_group_size is not None:
            text += f" exp_group_size={rel.expected_group_size}"
        return text + (" monotonic" if rel.monotonic else "")

    def _top_k(self, rel: mir.TopK, print_: scalars.ScalarPrinter) -> str:
        parts = ["TopK"]
        if rel.group_key:
            parts.append(f"group_by=[{print_.columns(rel.group_key)}]")
        if rel.order_key:
            parts.append(f"order_by=[{print_.order(rel.order_key)}]")
        if rel.limit is not None:
            parts.append(f"limit={print_.scalar(rel.limit)}")
        if rel.offset:
            parts.append(f"offset={rel.offset}")
        if rel.monotonic:
            parts.append("monotonic")
        if rel.expected_group_size is not None:
            parts.append(f"exp_group_size={rel.expected_group_size}")
        return " ".join(parts)

    def _get(self, rel: mir.Get) -> str:
        if isinstance(rel.id, int):
            return f"Get l{rel.id}"
        name = self._humanizer.name(rel.id)
        match rel.access:
            case mir.AccessPersist():
                return f"ReadStorage {name}"
            case mir.AccessIndex(uses=uses):
                by_index: dict[GlobalId, list[str]] = {}
                for index, usage in uses:
                    by_index.setdefault(index, []).append(usage)
                listed = " ".join(
                    f"{short(self._humanizer.name(index))}=[{', '.join(usages)}]"
                    for index, usages in by_index.items()
                )
                return f"ReadIndex on={short(name)} {listed}"
            case _:
                if rel.id in self._built:
                    return f"ReadGlobalFromSameDataflow {name}"
                return f"Get {name}"

    def _constant(self, rel: mir.Constant, level: int) -> None:
        if rel.error is not None:
            text = scalars.REDACTED if self._config.redacted else constants.quoted(rel.error)
            self._head(level, f"Error {text}", rel)
            return
        self._head(level, "Constant" if rel.rows else "Constant <empty>", rel)
        indent = level + 1
        if len(rel.rows) > MAX_ROWS:
            total = sum(abs(diff) for _, diff in rel.rows)
            self._out.add(indent, f"total_rows (diffs absed): {total}")
            self._out.add(indent, "first_rows:")
            indent += 1
        columns = rel.typ.columns
        rows = rel.rows if self._as_written else as_stored(rel.rows, columns)
        for row, diff in rows[:MAX_ROWS]:
            text = self._scalars.row(row, columns)
            self._out.add(indent, f"- {text}" if diff == 1 else f"- ({text} x {diff})")

    def _let(self, rel: mir.Let, level: int) -> None:
        bindings: list[mir.Let] = []
        body: mir.Relation = rel
        while isinstance(body, mir.Let):
            bindings.append(body)
            self._derived.bind(body)
            if self._equal is not None:
                self._equal.bind(body)
            self._called.bind(body.id, body.value)
            body = body.body
        self._head(level, "Return", rel)
        self._node(body, level + 1)
        self._out.add(level, "With")
        for let in reversed(bindings):
            self._out.add(level + 1, f"cte l{let.id} =", node=True)
            self._node(let.value, level + 2)

    def _let_rec(self, rel: mir.LetRec, level: int) -> None:
        self._derived.bind(rel)
        if self._equal is not None:
            self._equal.bind(rel)
        rounds = self._called.rounds(rel)
        self._head(level, "Return", rel)
        self._node(rel.body, level + 1)
        shared = rel.limits[0] if len(set(rel.limits)) == 1 else None
        self._out.add(level, f"With Mutually Recursive{recursion_limit(shared)}")
        called, named = self._called, self._names
        for local, value, limit, names in reversed(
            list(zip(rel.ids, rel.values, rel.limits, rounds, strict=True))
        ):
            own = recursion_limit(None if shared else limit)
            self._out.add(level + 1, f"cte{own} l{local} =", node=True)
            self._called, self._names = names, None if named is None else names
            self._node(value, level + 2)
        self._called, self._names = called, named

    # --- joins ----------------------------------------------------------------------------------

    def _join(self, rel: mir.Join, level: int) -> None:
        kinds = {
            mir.Differential: " type=differential",
            mir.DeltaQuery: " type=delta",
            mir.Unplanned: "",
        }
        match rel.implementation:
            case mir.IndexedFilter(coll=coll, index=index, rows=rows, key=key):
                constant = rel.inputs[1]
                if isinstance(constant, mir.Get):
                    # Several lookups share one constant.
                    usage = f"lookup values=<Get l{constant.id}>"
                else:
                    columns = relation_type(constant, self._derived.types).columns[: len(key)]
                    usage = lookup([self._scalars.row(row, columns) for row in rows])
                text = read_index(
                    self._humanizer.name(coll), short(self._humanizer.name(index)), usage
                )
                self._head(level, text, rel)
                return
            case implementation:
                kind = kinds[type(implementation)]
        if rel.equivalences:
            print_ = self._over(rel)
            classes = " AND ".join(
                " = ".join(print_.scalar(expr) for expr in cls) for cls in rel.equivalences
            )
            self._head(level, f"Join on=({classes}){kind}", rel)
        else:
            self._head(level, f"CrossJoin{kind}", rel)
        if self._config.join_implementations:
            self._implementation(rel, level + 1)

    def _implementation(self, rel: mir.Join, level: int) -> None:
        names = [f"%{i}{self._input_name(part)}" for i, part in enumerate(rel.inputs)]

        def step(order: mir.JoinInputOrder) -> str:
            key = "[×]" if not order.key else self._scalars.key(order.key)
            return f"{names[order.input]}{key}{order.characteristics}"

        match rel.implementation:
            case mir.Differential(start=start, start_key=key, order=order):
                shown = "" if key is None else ("[×]" if not key else self._scalars.key(key))
                first = f"{names[start]}{shown}{rel.implementation.start_characteristics}"
                self._out.add(level, "implementation")
                self._out.add(level + 1, " » ".join([first, *(step(o) for o in order)]))
            case mir.DeltaQuery(orders=orders):
                self._out.add(level, "implementation")
                for start, path in enumerate(orders):
                    self._out.add(level + 1, " » ".join([names[start], *(step(o) for o in path)]))
            case _:
                pass

    def _input_name(self, part: mir.Relation) -> str:
        """The name of what an input reads, below filters, maps, projections and arrangements."""
        while isinstance(part, mir.ArrangeBy | mir.Filter | mir.Map | mir.Project):
            part = part.input
        if isinstance(part, mir.Join) and isinstance(part.implementation, mir.IndexedFilter):
            return f":{short(self._humanizer.name(part.implementation.coll))}"
        if not isinstance(part, mir.Get):
            return ""
        return (
            f":l{part.id}"
            if isinstance(part.id, int)
            else f":{short(self._humanizer.name(part.id))}"
        )


def short(name: str) -> str:
    """The last part of a qualified name."""
    return name.rsplit(".", 1)[-1]


def lookup(rows: Sequence[str]) -> str:
    """An index lookup by literal keys."""
    return f"lookup value={rows[0]}" if len(rows) == 1 else f"lookup values=[{'; '.join(rows)}]"


def read_index(on: str, index: str, usage: str) -> str:
    """A read of an index."""
    return f"ReadIndex on={on} {index}=[{usage}]"


def explain_mir(
    df: MirDataflow,
    finishing: RowSetFinishing | None,
    humanizer: Humanizer,
    config: ExplainConfig,
    frame: Frame | None = None,
    *,
    pushed: Mapping[GlobalId, MapFilterProject | None] | None = None,
    statistics: Statistics = no_statistics,
) -> str:
    """EXPLAIN OPTIMIZED PLAN AS TEXT or DOT of a dataflow; ``pushed`` are the MFPs that lowering pushes into the reads
    of sources.
    """
    built = frozenset(obj.id for obj in df.objects)
    plans: list[tuple[str, Lines]] = []
    with deep():
        for obj in reversed(df.objects):
            is_root = obj is df.objects[-1]
            header = plan_header(obj.id, is_root, isinstance(df.export, PeekExport), humanizer)
            body = MirPrinter(humanizer, config, built, statistics=statistics).plan(
                obj.plan, finishing if is_root else None, 1
            )
            plans.append((header, body))
    known = pushed or {}
    sources = [(s.id, pushed_filters(known.get(s.id))) for s in df.source_imports]
    return assemble(
        plans,
        sources=source_blocks(sources, humanizer, config, named=config.humanized_expressions),
        used_indexes=df.index_imports,
        humanizer=humanizer,
        frame=frame or Frame(),
    )


def pushed_filters(mfp: MapFilterProject | None) -> MapFilterProject | None:
    """The filters that MIR shows for a read; None where there are none. (Projections are decided by lowering.)"""
    if mfp is None:
        return None
    # Express filters over the source's columns: computed columns are inlined.
    preds = filters_over_input(mfp)
    if not preds:
        return None
    # Factor out common subexpressions of several predicates.
    return MapFilterProject.identity(mfp.input_arity).filter(preds).optimize()


def explain_relation(
    rel: mir.Relation,
    finishing: RowSetFinishing | None,
    humanizer: Humanizer,
    config: ExplainConfig,
    frame: Frame | None = None,
    *,
    as_written: bool = False,
    statistics: Statistics = no_statistics,
) -> str:
    """EXPLAIN DECORRELATED (``as_written``) or LOCALLY OPTIMIZED PLAN AS TEXT or DOT: a single relation, without
    header.
    """
    with deep():
        printer = MirPrinter(humanizer, config, as_written=as_written, statistics=statistics)
        body = printer.plan(rel, finishing, 0)
    return assemble([("", body)], humanizer=humanizer, frame=frame or Frame())
