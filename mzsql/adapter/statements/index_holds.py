"""Keeps indexes readable while an object that reads them is created.

Promise: within the block no replica's arrangement of an index is compacted beyond the time given, so a dataflow that
begins at that time finds there what it is to read, whichever process runs it. An index of which a replica has no
arrangement yet is not held: it begins no earlier than its `as_of`, which whoever asks considers by itself. Leased
readers hold, so a process that ends within the block holds nothing back for long.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

from mzsql.adapter.environment.environment import Environment
from mzsql.adapter.planning.planner import Planner
from mzsql.catalog.objects import Index
from mzsql.compute.replica.dataflows.dataflow import index_desc
from mzsql.persist import ReadHandle, ShardFinalized
from mzsql.render.nodes.naming import arrangement_name
from mzsql.repr.frontier import MIN_TIMESTAMP, Timestamp
from mzsql.repr.ids import GlobalId


@contextlib.contextmanager
def indexes_held(
    env: Environment, planner: Planner, indexes: Iterable[GlobalId]
) -> Iterator[Timestamp]:
    """Hold the indexes on all replicas that maintain them.

    Returns:
        The earliest time from which all of them stay readable within the block.
    """
    with contextlib.ExitStack() as held:
        readers: list[ReadHandle] = []
        for shard in _shards(env, planner, indexes):
            try:
                reader = env.persist.open_reader(shard, purpose="an object that is created on it")
            except ShardFinalized:
                continue  # the replica or the index was dropped meanwhile
            held.callback(reader.expire)
            readers.append(reader)
        yield max([MIN_TIMESTAMP, *(one.since for one in readers if one.since is not None)])


def _shards(env: Environment, planner: Planner, indexes: Iterable[GlobalId]) -> Iterator[str]:
    """The shards in which the replicas of the indexes' clusters keep them."""
    state = env.catalog.state
    for gid in indexes:
        index = state.items.get(gid)
        cluster = state.cluster(index.cluster or "") if isinstance(index, Index) else None
        if not isinstance(index, Index) or cluster is None:
            continue
        sealed, outline = planner.deployed(index).as_taken_up()
        desc = index_desc(gid, sealed, planner.renderings.of(sealed, outline))
        for replica in state.working(cluster.id):
            name = arrangement_name(desc.fingerprint, replica.workers)
            shard = state.arrangements.get(f"{replica.id}/{name}")
            if shard is not None:
                yield shard
