"""What the simulation once found: plans by the name of the bug, and the shortest way to it where there is one."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from simulation_run import Plan, play

from mzsql.location.mem import MemBlob, MemConsensus
from mzsql.persist import PersistClient, Settings
from mzsql.persist.codec import decode_entry

FOUND = msgspec.json.decode(
    Path(__file__).with_name("regressions.json").read_bytes(), type=dict[str, list[Plan]]
)
"""Whole plans, so that a change of `draw` does not change what they say."""


@pytest.mark.parametrize(
    ("bug", "plan"), [pytest.param(b, p, id=f"{b}-{p.seed}") for b, ps in FOUND.items() for p in ps]
)
def test_it_stays_fixed(bug: str, plan: Plan) -> None:
    met = play(plan).coverage
    # A shard may end before anybody reads it; then somebody must have been told so.
    assert met["compared"] or met["met a tombstone"], bug


class Lagging(MemConsensus):
    """A Consensus whose ``head`` gives an old entry so many times."""

    old = None
    times = 0

    def head(self, key):
        if self.times:
            self.times -= 1
            return self.old
        return super().head(key)


def test_a_lagging_head_does_not_make_a_rollup_missing():
    blob, consensus = MemBlob(), Lagging()
    settings = Settings(rollup_interval=2, inline_bytes=0)
    schema = pa.schema([("k", pa.int64())])
    client = PersistClient(
        blob, consensus, rng=random.Random(1), settings=settings, background=False
    )
    shard_id = client.new_shard_id()
    writer = client.open_writer(shard_id, schema)
    named = None
    for time in range(40):
        writer.compare_and_append(None, expected_upper=time, new_upper=time + 1)
        head = consensus.head(shard_id)
        found = decode_entry(head.data, shard_id, head.seqno, version=client._context.version)
        if named is None and found.rollup_key:
            consensus.old, named = head, found.rollup_key
    assert named is not None
    assert blob.get(named) is None
    consensus.times = 3
    other = PersistClient(
        blob, consensus, rng=random.Random(2), settings=settings, background=False
    )
    assert other.open_writer(shard_id).upper == 40
    assert consensus.times == 0
