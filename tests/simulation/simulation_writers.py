"""Actors that write: append at the upper, append definite data, hand batches on."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from simulation_actor import (
    Actor,
    definite_updates,
    drawn_row,
    drawn_updates,
)
from simulation_truth import Attempt, Update

from mzsql.location import Determinate, Indeterminate, UsageError
from mzsql.persist import (
    Batch,
    InvalidBounds,
    SchemaMismatch,
    WriteHandle,
)


class Appender(Actor):
    """Appends with compare_and_append."""

    def step(self) -> None:
        rng, writer = self.rng, self.writer()
        if rng.random() < 0.04:
            self._misuse(writer)
            return
        if rng.random() < 0.04:
            self._expire(writer)
            return
        lower = self.current_upper(writer)
        if lower is None:
            return
        upper = lower + rng.randint(1, 4)
        rows = rng.choice((0, 1, 1, 2, 3, 8))
        if rng.random() < 0.06:
            upper, rows = lower, 0
        updates = drawn_updates(rng, self.shard.kind, lower, upper, rows) if rows else []
        attempt = self.attempt("append", lower, upper, updates)
        given = self.shard.by_worker(updates) if updates or rng.random() < 0.5 else None
        timeout = self.timeout
        self.attempted(
            attempt,
            lambda: writer.compare_and_append(
                given, expected_upper=lower, new_upper=upper, timeout=timeout
            ),
        )

    def _misuse(self, writer: WriteHandle) -> None:
        """A call that must be refused, and change nothing."""
        lower = self.current_upper(writer)
        if lower is None:
            return
        updates = [(drawn_row(self.rng, self.shard.kind), lower + 1, 1)]
        good = self.shard.by_worker(updates)
        narrow: Any = self.shard.table(updates).drop(["k"])
        narrow = {0: narrow} if isinstance(good, dict) else narrow
        given, upper, error = self.rng.choice(
            [
                (good, lower + 1, InvalidBounds),
                (good, max(lower - 1, 0), InvalidBounds if lower else UsageError),
                (narrow, lower + 2, SchemaMismatch),
            ]
        )
        attempt = self.attempt("misuse", lower, upper, [])
        try:
            outcome = self.attempted(
                attempt,
                lambda: writer.compare_and_append(given, expected_upper=lower, new_upper=upper),
            )
        except error:
            self.count("misuse refused")
        else:
            if outcome == "done":
                self.truth.fail("misuse was accepted")

    def _expire(self, writer: WriteHandle) -> None:
        task = self.world.current
        assert task is not None
        self._writer = None
        task.doing = Attempt("expire", 0, 0, [], expires=True)
        try:
            writer.expire(timeout=self.timeout)
        finally:
            task.doing = None
        self.count("writer given up")


class Definite(Actor):
    """One of several writers of the same definite data."""

    def step(self) -> None:
        rng, writer = self.rng, self.writer()
        current = self.current_upper(writer)
        if current is None:
            return
        lower = max(0, current - rng.randrange(3))
        upper = lower + rng.randint(1, 5)
        updates = definite_updates(self.run.plan.seed, lower, upper)
        attempt = self.attempt("definite", lower, upper, updates)
        attempt.definite = True
        timeout = self.timeout
        self.attempted(
            attempt,
            lambda: writer.append(
                self.shard.table(updates), lower=lower, upper=upper, timeout=timeout
            ),
        )


class Batcher(Actor):
    """Writes batches before their time is known, and appends those that others wrote."""

    def step(self) -> None:
        waiting = self.run.mailbox.setdefault(self.shard.shard_id, [])
        if not waiting or self.rng.random() < 0.5:
            self._write(waiting)
        else:
            self._append(waiting)

    def _write(self, waiting: list[tuple[bytes, list[Update]]]) -> None:
        rng, writer = self.rng, self.writer()
        updates = drawn_updates(rng, self.shard.kind, 0, 1, rng.choice((1, 2, 8)))
        given = self.shard.by_worker(updates)
        if rng.random() < 0.3 and not isinstance(given, dict) and self.shard.key is None:
            batch = self._adopted(writer, given)
        elif isinstance(given, dict):
            batch = writer.batch_by_worker(given, lower=0, upper=1)
        else:
            batch = writer.batch(given, lower=0, upper=1)
        waiting.append((batch.to_bytes(), updates))
        self.count("batch written")

    def _adopted(self, writer: WriteHandle, table: pa.Table) -> Batch:
        """As Spark writes: into Blob by path, with checksums of pages, with no durability."""
        blob = self.run.blob
        key = f"{writer.part_prefix()}/part-0.parquet"
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, write_page_checksum=True)
        blob._inner.set(key, sink.getvalue().to_pybytes())
        if hasattr(blob, "make_durable"):
            blob.volatile.add(key)
        task = self.world.current
        assert task is not None
        task.doing = "adopt"
        try:
            return writer.adopt_parts([key], lower=0, upper=1, timeout=self.timeout)
        finally:
            task.doing = None
            self.count("adopted")

    def _append(self, waiting: list[tuple[bytes, list[Update]]]) -> None:
        rng, writer = self.rng, self.writer()
        taken = [
            waiting.pop(rng.randrange(len(waiting)))
            for _ in range(min(len(waiting), rng.randint(1, 3)))
        ]
        try:
            lower = self.current_upper(writer)
        except (Determinate, Indeterminate):
            waiting += taken
            raise
        if lower is None:
            return
        upper = lower + rng.randint(1, 3)
        batches = [Batch.from_bytes(data).rewrite_ts(lower) for data, _ in taken]
        updates = [(row, lower, diff) for _, of in taken for row, _, diff in of]
        attempt = self.attempt("batches", lower, upper, updates)
        timeout = self.timeout
        outcome = self.attempted(
            attempt,
            lambda: writer.compare_and_append_batch(
                batches, expected_upper=lower, new_upper=upper, timeout=timeout
            ),
        )
        if outcome == "failed":
            if rng.random() < 0.5:
                waiting += taken
            else:
                for batch in batches:
                    writer.delete_batch(batch)
                    self.count("batch deleted")
