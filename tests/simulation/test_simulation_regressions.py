"""What the simulation once found: seeds by the name of the bug, and the shortest way to it where there is one."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from simulation_run import draw, play

from mzsql.location.mem import MemBlob, MemConsensus
from mzsql.persist import PersistClient, Settings
from mzsql.persist.codec import decode_entry

FOUND = {
    "a lagging head looks like a missing rollup": (3, 33),
    "handles are visited in an order that a replay does not repeat": (6,),
    "a reader sees a downgrade that may have happened": (129, 434),
    "an object to be adopted is gone with the shard it is for": (901200,),
    "a lease that is renewed twice looks like an append done twice": (900903,),
}


@pytest.mark.parametrize(("bug", "seed"), [(b, s) for b, seeds in FOUND.items() for s in seeds])
def test_it_stays_fixed(bug: str, seed: int) -> None:
    assert play(draw(seed)).coverage["compared"] > 0, bug


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
