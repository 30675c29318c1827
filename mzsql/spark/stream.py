"""``spark.readStream.format("mzsql")``: a relation's contents, then its changes, exactly once across restarts and kills
of the stream.

Promise: the first batch has the contents at one timestamp as inserts, each later one every change since, with its time.
With the option ``changes`` each row says what happened to it and when; without it a deletion fails the stream instead
of being omitted. An offset in Spark's checkpoint is the time delivered: a batch that Spark plans again after a kill has
exactly the same rows. The history that a restarted stream needs is kept by a durable hold, which outlives the process;
its name is in the checkpoint, and it advances with what Spark has committed. So a stream resumes however long it was
down.

The hold is created once the checkpoint names it, so a stream that dies before leaves nothing behind. The trade-offs: an
abandoned stream retains history until its hold is released (`release_stream`) or the relation is dropped; ``mzsql
inspect`` shows it. Only tables and materialized views have changes. All changes at one timestamp are in the same batch;
in each task's rows, deletions precede insertions of the same time.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from mzsql.adapter.reader import EnvironmentReader, RelationInfo
from mzsql.repr.errors import InvalidParameter, NotReadable, UndefinedTable
from mzsql.repr.frontier import Timestamp
from mzsql.spark import rows
from mzsql.spark.opened import in_one_sentence, reading
from mzsql.spark.options import Target, target
from mzsql.spark.rows import Slice
from mzsql.storage import DurableHold

_HOLD = "spark-stream-"

#: An offset: everything of the relation ``gid`` up to and including time ``at`` was delivered (-1: nothing); ``hold``
#: is the hold's name.
Offset = dict[str, Any]


class ChangeStream(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]  # PySpark is not typed for mypy here
    """Plans the batches of one stream on the driver; `read` runs in tasks."""

    def __init__(self, wanted: Target, schema: StructType) -> None:
        # Errors are raised by the first call: Spark does not report an exception from the constructor.
        self._target = wanted
        self._schema = schema
        self._last: Timestamp | None = None

    # --- offsets --------------------------------------------------------------------------------

    def initialOffset(self) -> Offset:  # noqa: N802  Spark's own name
        """The offset before everything or, with the option ``from``, before the changes at that time."""
        with in_one_sentence(), reading(self._target.locations) as reader:
            relation = self._relation(reader)
            before = -1 if self._target.first is None else self._target.first - 1
            return {"gid": relation.id, "at": before, "hold": ""}

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: ARG002, N802
        """The latest complete time where something changed since ``start``; else ``start``."""
        with in_one_sentence(), reading(self._target.locations) as reader:
            relation = self._relation(reader, start)
            before = _at(start)
            at = self._complete(reader, relation)
            if self._last is not None:
                at = min(at, self._last)
            if at <= before:
                return start
            # The first offset names a hold even if nothing has changed: from then on history is kept for the stream.
            if start["hold"] and before >= 0 and not reader.changed(relation, at, before):
                return start
            return {"gid": relation.id, "at": at, "hold": start["hold"] or _new_hold()}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  Spark's own name
        """From now on only deliver what exists now."""
        with in_one_sentence(), reading(self._target.locations) as reader:
            relation = self._relation(reader)
            at = reader.fresh_timestamp()
            reader.wait(relation, at)
            self._last = at

    def _complete(self, reader: EnvironmentReader, relation: RelationInfo) -> Timestamp:
        """The time up to which the relation is complete, at most a fresh timestamp."""
        fresh = reader.fresh_timestamp()
        upper = reader.upper(relation)
        return fresh if upper is None else min(fresh, upper - 1)

    # --- batches ----------------------------------------------------------------------------------

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """The slices of the batch between two offsets: the contents at ``end``, or the changes since ``start``.

        Raises:
            NotReadable: the history that the stream needs to go on is no longer kept.
        """
        with in_one_sentence(), reading(self._target.locations) as reader:
            before, at = _at(start), _at(end)
            if at <= before:
                return []
            relation = self._relation(reader, end)
            hold = self._hold(reader, relation, end["hold"])
            needed = at if before < 0 else before
            since = max(hold.since or 0, reader.since(relation) or 0)
            if since > needed:
                hold.release()  # it keeps what is of no use to this stream
                raise NotReadable(
                    f"the stream of {relation.full_name} goes on at {needed}, and its history begins at {since}",
                    hint="Begin anew with a new checkpoint; what was delivered so far is complete up to there.",
                )
            snapshot = before < 0
            count = rows.slices(reader.stored_rows(relation, at, before))
            after = None if snapshot else before
            return [
                Slice(i, count, at, after=after, snapshot=snapshot, gid=relation.id)
                for i in range(count)
            ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a slice as Arrow batches."""
        assert isinstance(partition, Slice)
        with in_one_sentence():
            with reading(self._target.locations) as reader:
                relation = self._relation(reader, {"gid": partition.gid})
                table = rows.changes(
                    reader,
                    relation,
                    partition,
                    self._target.columns,
                    told=self._target.changes,
                )
            yield from rows.batches(table, to_arrow_schema(self._schema, timezone="UTC"))

    def commit(self, end: Offset) -> None:
        """Spark will not ask for anything before ``end`` again: release its history."""
        at = _at(end)
        if at < 0:
            return
        with in_one_sentence(), reading(self._target.locations) as reader:
            relation = self._relation(reader, end)
            if end["hold"]:
                self._hold(reader, relation, end["hold"]).downgrade(at)
            reader.let_go(relation, at)

    def _hold(self, reader: EnvironmentReader, relation: RelationInfo, name: str) -> DurableHold:
        return reader.durable_hold(relation, name, f"a Spark stream of {relation.full_name}")

    def _relation(self, reader: EnvironmentReader, offset: Offset | None = None) -> RelationInfo:
        """The relation; fails where it is not the one that the stream began with."""
        name = self._target.relation
        self._target.refuse("a stream", "as_of", "to")
        relation = reader.relation(name)
        if offset is not None and offset["gid"] != relation.id:
            raise UndefinedTable(
                f"the relation {name} that the stream reads was dropped, and made anew since",
                hint="Begin anew with a new checkpoint.",
            )
        reader.require_history(relation)
        wanted = rows.chosen(relation, self._target.columns)
        rows.check_schema(
            relation, rows.schema_of(wanted, changes=self._target.changes), self._schema
        )
        return relation


def release_stream(
    hold: str,
    env: str | None = None,
    *,
    profile: str | None = None,
    blob: str | None = None,
    consensus: str | None = None,
    oracle: str | None = None,
) -> None:
    """Release the history held for a stream that will never be resumed.

    Args:
        hold: the hold's name, as in ``mzsql inspect --shard`` and the stream's offsets (``query.lastProgress``).
        env: the environment's directory.
        profile: the name of a profile, instead of a directory.
        blob: the URL of its Blob store, instead of either.
        consensus: the URL of its Consensus store.
        oracle: the URL of its timestamp oracle.

    Raises:
        InvalidParameter: no relation has such a hold.
    """
    given = {"env": env, "profile": profile, "blob": blob, "consensus": consensus, "oracle": oracle}
    places = {key: place for key, place in given.items() if place is not None}
    found = target({**places, "relation": hold})
    with reading(found.locations) as reader:
        if not (hold.startswith(_HOLD) and reader.release_durable_hold(hold)):
            raise InvalidParameter(
                f"no relation has the hold {hold!r} of a Spark stream",
                hint="mzsql inspect ENV --shard shows the holds of a relation.",
            )


def _at(offset: Offset) -> Timestamp:
    return int(offset["at"])


def _new_hold() -> str:
    return _HOLD + uuid.uuid4().hex
