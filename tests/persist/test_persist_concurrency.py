"""Threads and processes on one shard, over files and SQLite."""

from __future__ import annotations

import multiprocessing
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

from persist_model import SCHEMA, blobs, counted, referenced, updates

from mzsql.persist import PersistClient, Settings, UpperMismatch

SETTINGS = Settings(rollup_interval=16, compaction_fanout=3, inline_bytes=2000)


def _client(place):
    return PersistClient.open(
        blob=f"file:{place}/blob", consensus=f"sqlite:{place}/c.db", settings=SETTINGS
    )


def _append(write, name, count):
    """Append ``count`` updates, each at whatever time is next."""
    upper = write.fetch_upper()
    for i in range(count):
        while True:
            table = updates([(i, name * (200 if i % 3 else 1), upper, 1)])
            try:
                write.compare_and_append(table, expected_upper=upper, new_upper=upper + 1)
            except UpperMismatch as mismatch:
                upper = mismatch.current
            else:
                upper += 1
                break


def _process(place, shard_id, name, count):
    with _client(place) as client:
        _append(client.open_writer(shard_id), name, count)


def _contents(read):
    upper = read.fetch_upper()
    rows = counted(read.snapshot_arrow(upper - 1))
    names = Counter()
    for (_, v, _), diff in rows.items():
        names[v[0]] += diff
    return upper, names


def test_threads_and_processes(tmp_path):
    with _client(tmp_path) as client:
        shard_id = client.new_shard_id()
        write, read = client.open_shard(shard_id, SCHEMA)
        context = multiprocessing.get_context("spawn")
        processes = [
            context.Process(target=_process, args=(str(tmp_path), shard_id, n, 25)) for n in "pq"
        ]
        threads = [
            threading.Thread(target=_append, args=(client.open_writer(shard_id), n, 25))
            for n in "abcd"
        ]
        heard = []

        def listen():
            for table, frontier in read.listen(0, timeout=60):
                heard.extend(table["v"].to_pylist())
                if frontier >= 150:
                    return

        listener = threading.Thread(target=listen)
        for one in [*processes, *threads, listener]:
            one.start()
        for one in [*threads, *processes, listener]:
            one.join(100)
        assert [p.exitcode for p in processes] == [0, 0]
        assert _contents(read) == (150, Counter(dict.fromkeys("abcdpq", 25)))
        assert len(heard) == 149
        read.downgrade_since(149)
        client.maintain(shard_id, full=True)
        state = client.inspect(shard_id)
        assert len(state.trace) == 1
        assert blobs(client) == referenced(state)
        assert _contents(read) == (150, Counter(dict.fromkeys("abcdpq", 25)))
        assert write.upper == 150


_KILLED = """
import sys
sys.path.insert(0, sys.argv[1])
import test_persist_concurrency as t
client = t._client(sys.argv[2])
write = client.open_writer(sys.argv[3])
upper = write.fetch_upper()
while True:
    table = t.updates([(upper, "k" * 3000, upper, 1)])
    write.compare_and_append(table, expected_upper=upper, new_upper=upper + 1)
    upper += 1
    print(upper, flush=True)
"""


def test_sigkill_loses_nothing_acknowledged(tmp_path):
    with _client(tmp_path) as client:
        shard_id = client.new_shard_id()
        _, read = client.open_shard(shard_id, SCHEMA)
        acknowledged = 0
        for lines in (3, 11, 20):
            command = [
                sys.executable,
                "-c",
                _KILLED,
                str(Path(__file__).parent),
                str(tmp_path),
                shard_id,
            ]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            for _ in range(lines):
                acknowledged = int(process.stdout.readline())
            process.send_signal(signal.SIGKILL)
            rest = process.communicate()[0].split()
            acknowledged = int(rest[-1]) if rest else acknowledged
            upper = read.fetch_upper()
            assert upper in (acknowledged, acknowledged + 1)
            rows = counted(read.snapshot_arrow(upper - 1))
            assert sorted(k for k, _, _ in rows) == list(range(upper))
            assert set(rows.values()) == {1}
