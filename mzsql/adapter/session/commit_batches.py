"""What a group of sessions writes, as one batch for each table.

Promise: all updates of a table in a group become one batch, however many sessions they come from; batches that were written ahead (COPY)
join it without being written again. A batch made for an attempt that lost serves the next one, if it is made of the same writes; else
its objects are deleted.
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

#: What is written to one table: updates (c0 …, mz_time 0, mz_diff), or a batch written before.
Write: TypeAlias = "pa.Table | Batch"
#: What one session writes, by table.
Writes: TypeAlias = Mapping[GlobalId, Sequence[Write]]


def merge(batches: Sequence[Batch]) -> Batch:
    """Batches of one shard, none of whose times are known yet, as one."""
    first = batches[0]
    if len(batches) == 1:
        return first
    return msgspec.structs.replace(first, parts=tuple(p for b in batches for p in b.parts))


class AttemptBatches:
    """The batches of the attempts to commit one group."""

    def __init__(self, env: Environment) -> None:
        self._env = env
        self._made_of: list[int] | None = None
        self._made: list[tuple[GlobalId, Batch]] = []
        self._batches: dict[GlobalId, Batch] = {}

    def of(self, group: Sequence[Writes]) -> Mapping[GlobalId, Batch]:
        """One batch for each table that the sessions of a group write.

        Raises:
            LocationError: one could not be written; nothing of it stays.
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
        """What was made is in the log, or may be: it is not for this process to delete any more."""
        self._made, self._made_of = [], None

    def discard(self) -> None:
        """Delete what was made for an attempt that was not committed and never will be."""
        made, self._made, self._made_of = self._made, [], None
        for gid, batch in made:
            discard_batch(self._env, gid, batch)


def discard_batch(env: Environment, gid: GlobalId, batch: Batch) -> None:
    """Delete the objects of a batch that is not in the log and never will be; logs where that fails."""
    if not batch.blob_keys():
        return
    try:
        env.collections.table(gid).discard(batch)
    except SqlError as failure:
        # They are nobody's; whoever finds leaks finds them.
        _log.warning("objects of a write that failed stay for now: %s", failure)
