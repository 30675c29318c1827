"""Turning the writes of a group of sessions into one batch for each table.

Promise: all updates of a table in a group become one batch, however many sessions they come from. Batches written ahead
(by COPY) join it without being written again. A batch made for an attempt that lost a race serves the next attempt if
that commits the same writes; otherwise its objects are deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import msgspec
import pyarrow as pa

from mzsql.adapter.environment.environment import Environment
from mzsql.persist import Batch
from mzsql.repr.errors import SqlError
from mzsql.repr.ids import GlobalId

_log = logging.getLogger(__name__)

#: A write to one table: updates with the columns c0, c1, …, mz_time (always 0: the commit's timestamp is not known yet)
#: and mz_diff; or a batch of them.
Write: TypeAlias = "pa.Table | Batch"
#: One session's writes, by table.
Writes: TypeAlias = Mapping[GlobalId, Sequence[Write]]


def merge(batches: Sequence[Batch]) -> Batch:
    """Several batches of one shard as one; none of them has its time yet."""
    first = batches[0]
    if len(batches) == 1:
        return first
    return msgspec.structs.replace(first, parts=tuple(p for b in batches for p in b.parts))


class AttemptBatches:
    """The batches made while trying to commit one group."""

    def __init__(self, env: Environment) -> None:
        self._env = env
        self._made_of: list[int] | None = None
        self._made: list[tuple[GlobalId, Batch]] = []
        self._batches: dict[GlobalId, Batch] = {}

    def of(self, group: Sequence[Writes]) -> Mapping[GlobalId, Batch]:
        """One batch for each table that the group's sessions write.

        Raises:
            LocationError: a batch could not be written; nothing of it is left.
        """
        made_of = [id(writes) for writes in group]
        if made_of == self._made_of:
            return self._batches
        self.discard()
        updates: dict[GlobalId, list[pa.Table]] = {}
        batches: dict[GlobalId, list[Batch]] = {}
        for writes in group:
            for gid, of_table in writes.items():
                for write in of_table:
                    if isinstance(write, Batch):
                        batches.setdefault(gid, []).append(write)
                    else:
                        updates.setdefault(gid, []).append(write)
        for gid, tables in updates.items():
            whole = pa.concat_tables(tables, promote_options="default").combine_chunks()
            batch = self._env.collections.table(gid).batch(whole)
            self._made.append((gid, batch))
            batches.setdefault(gid, []).append(batch)
        self._batches = {gid: merge(of_table) for gid, of_table in batches.items()}
        self._made_of = made_of
        return self._batches

    def keep(self) -> None:
        """The batches are in the log, or may be: this process must not delete them any more."""
        self._made, self._made_of = [], None

    def discard(self) -> None:
        """Delete what was made for an attempt that did not commit and never will."""
        made, self._made, self._made_of = self._made, [], None
        for gid, batch in made:
            discard_batch(self._env, gid, batch)


def discard_batch(env: Environment, gid: GlobalId, batch: Batch) -> None:
    """Delete the objects of a batch that is not in the log and never will be; a failure is logged."""
    if not batch.blob_keys():
        return
    try:
        env.collections.table(gid).discard(batch)
    except SqlError as failure:
        # No shard refers to them, so the search for leaked objects will delete them.
        _log.warning("objects of a write that failed stay for now: %s", failure)
