"""Runs rendered statements as a runner of dataflows would: state in memory, only looked-up rows given to a step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace

import duckdb
import pyarrow as pa

from mzsql.compute.engines.arrays.program import program_of
from mzsql.compute.engines.arrays.vectors import Unsupported
from mzsql.compute.engines.driver import Driver
from mzsql.compute.replica.step.deltas import Delta, Deltas
from mzsql.compute.replica.step.relation_facts import measured
from mzsql.expr.functions.table import Engine
from mzsql.render.dataflow import RenderedDataflow
from mzsql.render.rendered import StepOutput
from mzsql.render.rewrites.cut import pieces
from mzsql.repr.types import arrow_schema

Update = tuple[tuple, int, int]
META = [pa.field("mz_time", pa.int64()), pa.field("mz_diff", pa.int64())]


def relation(columns, updates: Sequence[tuple], *, errors: bool, timed: bool) -> pa.Table:
    """Updates (row or message, time, diff) as a table."""
    fields = list(arrow_schema(columns))
    if errors:
        fields.append(pa.field("mz_error", pa.string()))
    fields += META if timed else META[1:]
    rows = []
    for row, time, diff in updates:
        bad = isinstance(row, str)
        values = [None] * len(columns) if bad else list(row)
        values += ([row] if bad else [None]) if errors else []
        rows.append([*values, *([time] if timed else []), diff])
    arrays = [pa.array([row[i] for row in rows], type=field.type) for i, field in enumerate(fields)]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def duck(connection: duckdb.DuckDBPyConnection) -> Callable:
    """Runs a statement over relations in DuckDB."""

    def table(statement, relations: Mapping[str, pa.Table]) -> pa.Table:
        for name, table in relations.items():
            connection.register(name, table)
        try:
            text = (
                statement if isinstance(statement, str) else statement.sql("duckdb", identify=True)
            )
            return connection.sql(text).to_arrow_table()
        finally:
            for name in relations:
                connection.unregister(name)

    def run(statement, relations: Mapping[str, pa.Table]) -> list[tuple]:
        return table(statement, relations).to_pylist()

    run.table = table
    run.engine = Engine.DUCKDB
    return run


def hashable(value):
    if isinstance(value, list):
        return tuple(hashable(v) for v in value)
    if isinstance(value, dict):
        return tuple(hashable(v) for v in value.values())
    return value


def row_of(record: dict, positions: Sequence[int]) -> tuple:
    return tuple(hashable(record[f"c{p}"]) for p in positions)


def counted(rows: pa.Table) -> Counter:
    """What rows come to: those that cancel each other do."""
    found: Counter = Counter()
    for record in rows.to_pylist():
        diff = record.pop("mz_diff")
        found[repr(record)] += diff
    return Counter({row: diff for row, diff in found.items() if diff})


_driver = Driver()
_deltas = Deltas(_driver)


def _now(work: Callable[[], None]) -> None:
    work()


def _whole(found, straight, given, outputs, schema: pa.Schema) -> pa.Table:
    """What a lean statement puts out and what comes out beside it, as the usual one has it."""
    for field in schema:
        if field.name not in found.schema.names:
            found = found.append_column(field, pa.nulls(found.num_rows, field.type))
    pieces = [found.select(schema.names)]
    assert pieces[0].schema == schema
    by_tag = {one.tag: one for one in outputs}
    for one in straight:
        rows = given[one.relation]
        names = [f"c{i}" for i in by_tag[one.tag].positions]
        columns = dict(zip([*names, "mz_time", "mz_diff"], one.columns, strict=True))
        tags = pa.array([one.tag] * rows.num_rows, pa.int32())
        made = [
            tags
            if field.name == "mz_tag"
            else rows.column(columns[field.name]).cast(field.type)
            if field.name in columns
            else pa.nulls(rows.num_rows, field.type)
            for field in schema
        ]
        pieces.append(pa.table(made, schema=schema))
    return pa.concat_tables(pieces)


#: How many statements were computed with arrays, and how many were left to DuckDB.
computed_in_arrays: Counter = Counter()


def in_arrays(text, times, given, schema: pa.Schema) -> pa.Table | None:
    """The result of a step's statement without DuckDB, in the columns of a schema; None if it is left to DuckDB."""
    program = program_of(text.with_parameters)
    found = None
    if program is not None:
        try:
            by_tag = program.tagged(given, text.parameters(*times))
            parts = [rows.table(schema.names, schema) for rows in by_tag.values()]
            found = pa.concat_tables([schema.empty_table(), *parts])
        except Unsupported:
            pass
    computed_in_arrays[program is not None, found is not None] += 1
    return found


class Runner:
    """A dataflow's state and output, brought forward step by step."""

    def __init__(
        self, rendered: RenderedDataflow, run: Callable, *, prune: bool = True, lean: bool = False
    ):
        self.rendered = rendered
        self.run = run
        self.prune = prune
        #: whether each step's statement is the one for what its relations are
        self.lean = lean
        self.state: dict[str, list[Update]] = {spec.name: [] for spec in rendered.arrangements}
        self.columns = {spec.name: spec.columns for spec in rendered.arrangements}
        self.output: list[Update] = []
        self.index_state: dict[str, list[Update]] = {
            f"arr_{i.id}": [] for i in rendered.inputs if i.index
        }
        self.columns |= {f"arr_{i.id}": i.columns for i in rendered.inputs if i.index}
        self.state |= self.index_state
        self.rows_given = 0
        self.steps = 0
        self.turns = 0

    def _records(self, step, template, relations: dict[str, pa.Table], times) -> list[dict]:
        """A step's result: as a tree, in pieces, as Spark gets it, and as a text that is parsed once and run as written, by turns."""
        self.steps += 1
        if self.steps % 2:
            # As after a while in which nobody looks at them.
            self.rendered.cool(0)
            assert not self.rendered.warm(0)
        in_tables = hasattr(self.run, "table")
        duckdb_runs = in_tables and self.run.engine is Engine.DUCKDB
        if self.steps % 3 == 0 and not self.lean and template is not None and duckdb_runs:
            given = {name: relations[name] for name in step.reads}
            return _driver.step(template.text, *times, given, _now).to_pylist()
        if (self.lean or self.steps % 3 == 2) and template is not None and duckdb_runs:
            return self._lean(template, {name: relations[name] for name in step.reads}, times)
        if self.steps % 3 == 1 or not in_tables:
            return self.run(step.statement, {n: relations[n] for n in step.reads})
        *parts, last = pieces(step.statement)
        known = dict(relations)
        for part in parts:
            known[part.name] = self.run.table(part.statement, {n: known[n] for n in part.reads})
        return self.run(last.statement, {n: known[n] for n in last.reads})

    def _lean(self, template, given: dict[str, pa.Table], times) -> list[dict]:
        """A step's result by the statement for what its relations are; all columns and types as they are without."""
        usual = _driver.step(template.text, *times, given, _now)
        # Such a statement is for the updates that may matter.
        given = given | self._relevant(given)
        known = {
            name: measured(table, template.asked.get(name, ())) for name, table in given.items()
        }
        # The first call makes one, for what was seen; the second what is left of it where some relations have no rows, as a rule,
        # and the third finds that.
        lean = [template.lean(known, _now) for _ in range(3)][-1]
        assert lean is not None, known
        # As it is written, which makes its plan, and by its plan.
        for _ in range(2):
            found = usual.schema.empty_table()
            if lean.text is not None:
                reads = {name: given[name] for name in lean.reads}
                found = _driver.step(lean.text, *times, reads, _now)
                computed = in_arrays(lean.text, times, reads, found.schema)
                assert computed is None or counted(computed) == counted(found)
            found = _whole(found, lean.straight, given, template.step.outputs, usual.schema)
            assert counted(found) == counted(usual)
        return found.to_pylist()

    def hydrate(self, inputs: Mapping[str, Sequence[Update]], as_of: int) -> None:
        relations = {}
        for spec in self.rendered.inputs:
            updates = [(r, t, d) for r, t, d in inputs[spec.id] if t <= as_of]
            relations[f"snap_{spec.id}"] = relation(
                spec.columns, updates, errors=spec.has_errors, timed=False
            )
            if spec.index:
                self.state[f"arr_{spec.id}"] = [u for u in updates if not isinstance(u[0], str)]
        done: list[int] = []
        for stage in self.rendered.hydration(self.run.engine, as_of):
            assert set(stage.reads) <= set(relations), (stage.reads, set(relations))
            self.rendered.cool(0)
            records = self.run(stage.statement, {n: relations[n] for n in stage.reads})
            done += stage.completes
            good = []
            for record in records:
                if record["mz_error"] is not None:
                    assert stage.has_errors
                    self.output.append((record["mz_error"], as_of, record["mz_diff"]))
                else:
                    row = row_of(record, range(len(stage.columns)))
                    good.append((row, as_of, record["mz_diff"]))
            if stage.target is None:
                self.output += good
            else:
                self.state[stage.target] = good
                assert stage.columns == self.columns[stage.target] or [
                    c.type for c in stage.columns
                ] == [c.type for c in self.columns[stage.target]]
                relations[stage.target] = relation(stage.columns, good, errors=False, timed=False)
        assert sorted(done) == list(self.rendered.lir_ids)

    def step(
        self, inputs: Mapping[str, Sequence[Update]], lower: int, upper: int, step=None
    ) -> None:
        relations: dict[str, pa.Table] = {}
        for spec in self.rendered.inputs:
            updates = [u for u in inputs[spec.id] if lower <= u[1] < upper]
            relations[f"delta_{spec.id}"] = relation(
                spec.columns, updates, errors=spec.has_errors, timed=True
            )
        template = None
        if step is None:
            self._leave_out(relations)
            template = self._template(relations)
            step = template.at(lower, upper) if template.step is not None else None
        if step is not None:
            self._run_step(step, template, relations, (lower, upper))
        for spec in self.rendered.inputs:
            if spec.index:
                self.state[f"arr_{spec.id}"] += [
                    u
                    for u in inputs[spec.id]
                    if lower <= u[1] < upper and not isinstance(u[0], str)
                ]

    def _leave_out(self, relations: dict[str, pa.Table]) -> None:
        """By turns, only the updates that may matter."""
        self.turns += 1
        if self.turns % 3 == 0:
            return
        relations |= self._relevant(relations)

    def _relevant(self, relations: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
        specs = {f"delta_{spec.id}": spec for spec in self.rendered.inputs}
        return {
            name: _deltas.relevant(
                Delta(SimpleNamespace(spec=spec), 0, 0, relations[name]), self.rendered
            )
            for name, spec in specs.items()
            if name in relations
        }

    def _template(self, relations: Mapping[str, pa.Table]):
        """The whole step and the step of the inputs that have updates, where they have one time mostly the one for that, by turns."""
        times = {time for table in relations.values() for time in table["mz_time"].to_pylist()}
        at_once = len(times) == 1 and not self.rendered.temporal and self.turns % 4 > 0
        if len(self.output) % 2:
            return self.rendered.template(self.run.engine, at_once=at_once)
        changed = [name for name, table in relations.items() if table.num_rows]
        return self.rendered.template(self.run.engine, changed, at_once=at_once)

    def _run_step(self, step, template, relations, times: tuple[int, int]) -> None:
        lower, upper = times
        lookups = self.rendered.lookups if template is None else template.lookups
        given = self._looked_up(step.reads, relations, (lower, upper), lookups)
        for name in given:
            rows = [(r, lower - 1, d) for r, _, d in given[name]]
            self.rows_given += len(rows)
            relations[name] = relation(self.columns[name], rows, errors=False, timed=True)
        assert set(step.reads) <= set(relations), (step.reads, set(relations))
        records = self._records(step, template, relations, times)
        outputs = {output.tag: output for output in step.outputs}
        for record in records:
            self._take(record, outputs[record["mz_tag"]], lower, upper)

    def _take(self, record: dict, output: StepOutput, lower: int, upper: int) -> None:
        assert lower <= record["mz_time"] < upper
        if record["mz_error"] is not None:
            assert output.arrangement is None
            row = record["mz_error"]
        else:
            row = row_of(record, output.positions)
        target = self.output if output.arrangement is None else self.state[output.arrangement]
        target.append((row, record["mz_time"], record["mz_diff"]))

    def _looked_up(self, reads, relations, times, needed) -> dict[str, list[Update]]:
        names = [n for n in reads if n.startswith("arr_")]
        if not self.prune:
            return {n: list(self.state[n]) for n in names}
        lookups = {lookup.arrangement: lookup for lookup in needed}
        assert set(names) <= set(lookups), (names, set(lookups))
        found: dict[str, list[Update]] = {n: [] for n in lookups}
        con = duckdb.connect()
        for name, table in relations.items():
            con.register(name, table)
        while True:
            before = {n: len(rows) for n, rows in found.items()}
            for lookup in lookups.values():
                self._look_up(con, lookup, found, times)
            if before == {n: len(rows) for n, rows in found.items()}:
                return found

    def _look_up(self, con, lookup, found, times) -> None:
        everything = self.state[lookup.arrangement]
        if lookup.due:
            found[lookup.arrangement] = [u for u in everything if times[0] <= u[0][0] < times[1]]
        elif lookup.sources is None:
            found[lookup.arrangement] = list(everything)
        else:
            wanted = set()
            for source in lookup.sources:
                exprs = ", ".join(e.sql("duckdb", identify=True) for e in source.exprs)
                if source.relation in found:
                    rows = [(r, t, d) for r, t, d in found[source.relation]]
                    con.register(
                        source.relation,
                        relation(self.columns[source.relation], rows, errors=False, timed=True),
                    )
                text = f'SELECT DISTINCT {exprs} FROM "{source.relation}"'
                wanted |= {tuple(map(hashable, key)) for key in con.sql(text).fetchall()}
            lengths = {len(key) for key in wanted}
            found[lookup.arrangement] = [
                u for u in everything if any(u[0][:n] in wanted for n in lengths)
            ]

    # --- what it amounts to ---

    def contents(self, at: int) -> tuple[Counter, set]:
        rows: Counter = Counter()
        errors: Counter = Counter()
        for row, time, diff in self.output:
            if time <= at:
                (errors if isinstance(row, str) else rows)[row] += diff
        assert all(d >= 0 for d in errors.values()), errors
        return Counter({r: d for r, d in rows.items() if d}), {m for m, d in errors.items() if d}

    def arrangement(self, spec, at: int) -> Counter:
        """Its rows; for additive ones (key, sums)."""
        total: Counter = Counter()
        if not spec.additive:
            for row, time, diff in self.state[spec.name]:
                if time <= at:
                    total[row] += diff
            return Counter({r: d for r, d in total.items() if d})
        sums: dict = {}
        for row, time, diff in self.state[spec.name]:
            if time <= at:
                key = row[: spec.key_arity]
                old = sums.get(key, [0] * len(spec.additive))
                sums[key] = [o + row[p] * diff for o, p in zip(old, spec.additive, strict=True)]
        return Counter({(*k, *map(str, map(int, v))): 1 for k, v in sums.items() if any(v)})
