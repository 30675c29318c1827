"""A dataflow hydrated and stepped by DuckDB alone: real shards, real lookups, the real step, and no Spark to wait for."""

from __future__ import annotations

from mzsql.compute.dependencies import ComputeSettings
from mzsql.compute.engines.driver import Driver
from mzsql.compute.engines.relations import rows_at
from mzsql.compute.replica.arrangements.arrangement import Arrangement
from mzsql.compute.replica.arrangements.arrangement_shards import ArrangementShards
from mzsql.compute.replica.dataflows.dataflow import Dataflow, DataflowSpec, fill_plan
from mzsql.compute.replica.dataflows.inputs import CollectionInput
from mzsql.compute.replica.step.deltas import Deltas
from mzsql.compute.replica.step.step import StepTools, run_step
from mzsql.compute.replica.target import with_time
from mzsql.expr.functions.table import Engine
from mzsql.lir.sealed import SealedDataflow
from mzsql.render.dataflow import render


def no_spark():
    raise AssertionError("this step is to run without Spark")


class Stepper:
    """One view's dataflow.

    `storage`: a StorageReader; `registry`: an ArrangementRegistry; `desc`: the view's DataflowDescription.
    """

    def __init__(self, persist, storage, registry, desc, *, output_shard, as_of, **settings):
        self.settings = ComputeSettings(step_engine="duckdb", **settings)
        self.persist = persist
        self.driver = Driver()
        self.deltas = Deltas(self.driver)
        self.arrangements = ArrangementShards(persist, registry, "r1", self.driver, self.settings)
        gid = desc.export.id
        rendered = render(desc, errors_in=storage.has_errors)
        spec = DataflowSpec(gid, f"view_{gid}", SealedDataflow.of(desc), output_shard, as_of)
        inputs = [CollectionInput(one, storage, as_of) for one in rendered.inputs]
        self.dataflow = Dataflow(spec, rendered, inputs, {})
        fill_plan(self.dataflow, self.arrangements, persist, self.settings, None, storage)
        self._hydrate()

    def _hydrate(self) -> None:
        dataflow, as_of = self.dataflow, self.dataflow.as_of
        relations = {}
        for one in dataflow.inputs:
            rows = rows_at(one.parts(as_of), with_time(one.schema), as_of)
            relations[f"snap_{one.spec.id}"] = rows.drop_columns(["mz_time"])
        missing = {desc.name: desc for desc in dataflow.missing}
        for stage in dataflow.rendered.hydration(Engine.DUCKDB, as_of):
            rows = self.driver.query(
                stage.statement, {name: relations[name] for name in stage.reads}
            )
            target = dataflow.output
            if stage.target is not None:
                target = self.arrangements.begin(
                    missing[stage.target], *self.arrangements.reserve(1), as_of
                )
            full = with_time(target.schema)
            at = rows.append_column("mz_time", [[as_of] * rows.num_rows])
            if stage.target is not None:
                assert at.column("mz_error").null_count == at.num_rows
            names = [name for name in full.names if name in at.column_names]
            target.append(at.select(names).cast(full), 0, as_of + 1, exact=True)
            if isinstance(target, Arrangement):
                self.arrangements.publish([target], as_of)
                dataflow.arrangements[stage.target] = target
                parts = target.parts(as_of)
                relations[stage.target] = target.rows(rows_at(parts, full, as_of))
        dataflow.missing = []
        dataflow.hold(None)

    def step(self, upper):
        """Process the inputs' updates up to `upper`; the step's RefreshStats."""
        tools = StepTools(no_spark, no_spark, self.driver, self.settings, self.deltas)
        stats = run_step(self.dataflow, self.dataflow.lower(), upper, tools)
        self.dataflow.hold(None)
        return stats

    def stored(self, as_of):
        """The rows of each arrangement's parts, and the bytes of all of them."""
        parts = {name: one.parts(as_of) for name, one in self.dataflow.arrangements.items()}
        rows = {name: sum(part.rows for part in found) for name, found in parts.items()}
        return rows, sum(part.bytes for found in parts.values() for part in found)

    def close(self) -> None:
        for one in self.dataflow.arrangements.values():
            self.arrangements.release(one, retire=False)
        for source in self.dataflow.inputs:
            source.close(retire=False)
        self.dataflow.output.writer.expire()
        self.driver.close()
