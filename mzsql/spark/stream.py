"""``spark.readStream.format("mzsql")``: a relation's contents, then its changes, exactly once over restarts and kills of the stream.

Promise: the first batch has the contents at one time as inserts, each later one every change since, each at its time; with the option
``changes`` each row says what happened to it and when, without it a deletion fails the stream and is never left out. An offset in
Spark's checkpoint says up to where: a batch that Spark plans again after a kill has the very same rows. History that a restarted stream
needs is held by a hold that outlives the process; its name is in the checkpoint, and it moves on with what Spark has committed. So a
stream goes on however long it was down.

The hold is taken once the checkpoint names it, so a stream that dies before has left nothing behind. Trade-offs: a stream that is given
up holds history until its hold is released (`release_stream`), or the relation is dropped; ``mzsql inspect`` shows it. Only tables and
materialized views have changes. Changes of one time come in one batch; in it a deletion stands before an insertion of the same time in
each task's rows.
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

#: What an offset says: all of the relation ``gid`` up to and with the time ``at`` was delivered (-1: nothing); ``hold`` names the hold.
Offset = dict[str, Any]


class ChangeStream(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]  # PySpark is not typed for mypy here
    """Plans the batches of one stream, in the driver's process; `read` runs in tasks."""

    def __init__(self, wanted: Target, schema: StructType) -> None:
        # What is wrong is said by the first call: of one that fails here Spark tells nothing.
        self._target = wanted
        self._schema = schema
        self._last: Timestamp | None = None

    # --- offsets --------------------------------------------------------------------------------

    def initialOffset(self) -> Offset:  # noqa: N802  Spark's own name
        """Before everything; or, with the option ``from``, before the changes of that time."""
        with in_one_sentence(), reading(self._target.locations) as reader:
            relation = self._relation(reader)
            before = -1 if self._target.first is None else self._target.first - 1
            return {"gid": relation.id, "at": before, "hold": ""}

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: ARG002, N802
        """The latest complete time, where something changed since ``start``; else ``start``."""
        with in_one_sentence(), reading(self._target.locations) as reader:
            relation = self._relation(reader, start)
            before = _at(start)
            at = self._complete(reader, relation)
            if self._last is not None:
                at = min(at, self._last)
            if at <= before:
                return start
            # The first offset names a hold, also where nothing has changed: from then on history waits for the stream.
            if start["hold"] and before >= 0 and not reader.changed(relation, at, before):
                return start
            return {"gid": relation.id, "at": at, "hold": start["hold"] or _new_hold()}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  Spark's own name
        """From now on only what is there now is delivered."""
        with in_one_sentence(), reading(self._target.locations) as reader:
            relation = self._relation(reader)
            at = reader.fresh_timestamp()
            reader.wait(relation, at)
            self._last = at

    def _complete(self, reader: EnvironmentReader, relation: RelationInfo) -> Timestamp:
        """The time up to which the relation is complete; a fresh one where it keeps up."""
        fresh = reader.fresh_timestamp()
        upper = reader.upper(relation)
        return fresh if upper is None else min(fresh, upper - 1)

    # --- batches ----------------------------------------------------------------------------------

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """The slices of the batch between two offsets: the contents at ``end``, or the changes since ``start``."""
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
        """Spark will not ask again for what was before ``end``: its history is let go of."""
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
        """The relation, as it was when the stream began."""
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
    """Let go of the history that a stream which will never go on holds.

    Args:
        hold: the hold's name, as ``mzsql inspect --shard`` and the stream's offsets (``query.lastProgress``) show it.
        env: the environment's directory, or
        profile: the name of a profile, or
        blob: the URL of its Blob store,
        consensus: of its Consensus store,
        oracle: and of its timestamp oracle.

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
