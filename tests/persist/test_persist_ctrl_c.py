"""Ctrl-C at any moment of an operation leaves nothing behind in its thread: neither the counting nor the limits of what comes next."""

from __future__ import annotations

import random

from ctrl_c_kit import ctrl_c_at
from persist_model import SCHEMA, ManualClock, updates
from prometheus_client import CollectorRegistry

from mzsql.location import seconds_left
from mzsql.location.mem import MemBlob, MemConsensus
from mzsql.persist import PersistClient

WATCHED = ("metrics.py", "machine.py", "deadlines.py")
"""Where limits and counts are set and taken back: files in which Ctrl-C is tried at each moment."""


def _interrupted_at(number: int) -> bool:
    """Interrupt a commit at the ``number``-th moment and look at what comes next; whether there was such a moment."""
    registry = CollectorRegistry()
    client = PersistClient(
        MemBlob(),
        MemConsensus(),
        clock=ManualClock(),
        rng=random.Random(3),
        background=False,
        registry=registry,
    )
    shard = client.new_shard_id()
    write, _ = client.open_shard(shard, SCHEMA)
    row, pressed = updates([(1, "a", 0, 1)]), False
    try:
        with ctrl_c_at(number, WATCHED):
            write.compare_and_append(row, expected_upper=0, new_upper=1, timeout=5.0)
    except KeyboardInterrupt:
        pressed = True
    assert seconds_left() is None, number
    client.inspect(shard)
    labels = {"operation": "inspect"}
    counted = registry.get_sample_value("mzsql_persist_operation_seconds_count", labels)
    assert counted == 1, number
    return pressed


def test_what_ctrl_c_ends_at_any_moment_neither_stops_the_counting_nor_leaves_a_limit():
    moments = 0
    while _interrupted_at(moments + 1):
        moments += 1
    assert moments > 50
