"""The SQLite file: fsyncs as many as a power loss needs, timeouts that are the caller's, and wake-ups between processes."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
import threading
import time

import pyarrow as pa
import pytest

from mzsql.location import Determinate, Versioned
from mzsql.location.file import FileBlob
from mzsql.location.sqlite import SqliteConsensus
from mzsql.persist import PersistClient

#: How long a busy machine may take to get to something, in seconds.
PATIENCE = 120

_APPENDS = """
import os, sys
import pyarrow as pa
from mzsql.persist import PersistClient

place = sys.argv[1]
client = PersistClient.open(
    blob=f"file:{place}/new/blob", consensus=f"sqlite:{place}/new/deep/c.db", background=False
)
write, _ = client.open_shard(client.new_shard_id(), pa.schema([("a", pa.int64())]))
os.write(2, b"MARK begin\\n")
for at in range(3):
    table = pa.table({"a": list(range(10)), "mz_time": [at] * 10, "mz_diff": [1] * 10})
    write.compare_and_append(table, expected_upper=at, new_upper=at + 1)
    os.write(2, b"MARK appended\\n")
os._exit(0)
"""


def _traced(tmp_path):
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("needs strace")
    log = tmp_path / "strace.txt"
    calls = "trace=fsync,fdatasync,write"
    ran = subprocess.run(
        [strace, "-f", "-y", "-e", calls, "-o", log, sys.executable, "-c", _APPENDS, tmp_path],
        capture_output=True,
        check=False,
    )
    if not log.exists() or b"MARK appended" not in ran.stderr:
        pytest.skip(f"cannot trace: {ran.stderr[-200:]!r}")
    return log.read_text().splitlines()


def test_an_inline_append_costs_one_fsync_of_the_log(tmp_path):
    found, synced = [], []
    for line in _traced(tmp_path):
        if "MARK" in line:
            found.append(synced)
            synced = []
        elif "sync(" in line:
            synced.append(line.split("<", 1)[1].split(">", 1)[0])
    before, *appends = found
    log = str(tmp_path / "new" / "deep" / "c.db-wal")
    assert appends == [[log]] * 3
    # The entries of the new directories, and of the database and its log, were seen to before.
    for directory in (tmp_path, tmp_path / "new", tmp_path / "new" / "deep"):
        assert str(directory) in before


def test_a_locked_database_keeps_nobody_beyond_their_timeout(tmp_path):
    consensus = SqliteConsensus(tmp_path / "c.db")
    client = PersistClient(FileBlob(tmp_path / "blob"), consensus, background=False)
    schema = pa.schema([("a", pa.int64())])
    write, _ = client.open_shard(client.new_shard_id(), schema)
    locker = sqlite3.connect(tmp_path / "c.db", isolation_level=None, check_same_thread=False)
    locker.execute("BEGIN IMMEDIATE")
    began = time.monotonic()
    with pytest.raises(Determinate):
        write.compare_and_append(None, expected_upper=0, new_upper=5, timeout=0.2)
    assert time.monotonic() - began < 30  # a statement used to wait a minute by itself
    threading.Timer(1.2, lambda: locker.execute("ROLLBACK")).start()
    write.compare_and_append(None, expected_upper=0, new_upper=5, timeout=60)
    assert write.fetch_upper() == 5
    client.close()
    consensus.close()
    locker.close()


def test_an_opening_waits_for_a_lock_longer_than_a_statement_does(tmp_path):
    SqliteConsensus(tmp_path / "c.db").close()
    locker = sqlite3.connect(tmp_path / "c.db", isolation_level=None, check_same_thread=False)
    locker.execute("PRAGMA locking_mode=EXCLUSIVE")
    locker.execute("BEGIN EXCLUSIVE")
    threading.Timer(1.2, locker.close).start()
    consensus = SqliteConsensus(tmp_path / "c.db")
    assert consensus.head("k") is None
    consensus.close()


_WRITER = """
import sys
from mzsql.location import Versioned
from mzsql.location.sqlite import SqliteConsensus

consensus = SqliteConsensus(sys.argv[1])
for seqno in range(20):
    sys.stdin.readline()  # everybody waits for this one
    consensus.compare_and_set("k", seqno - 1 if seqno else None, Versioned(seqno, b"x"))
"""


@pytest.mark.parametrize("watched", [True, False])
def test_waiters_see_what_another_process_writes(tmp_path, monkeypatch, watched):
    """Several threads on one handle, with the system's notification and without."""
    if not watched:
        monkeypatch.setattr("mzsql.location.sqlite.watch_directory", lambda _directory: None)
    consensus = SqliteConsensus(tmp_path / "c.db")
    seen = [[] for _ in range(3)]
    writer = subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(tmp_path / "c.db")], stdin=subprocess.PIPE, text=True
    )

    def write_next():
        # Everybody has seen what there is, and looks for the next one.
        writer.stdin.write("\n")
        writer.stdin.flush()

    together = threading.Barrier(len(seen), write_next)

    def follow(mine):
        last = -1
        while last < 19:
            together.wait(PATIENCE)
            while not consensus.wait("k", last, PATIENCE):
                assert writer.poll() in (None, 0)
            for entry in consensus.scan("k", last + 1, 100):
                last = entry.seqno
                mine.append(last)

    threads = [threading.Thread(target=follow, args=(mine,)) for mine in seen]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.stdin.close()
    assert writer.wait(PATIENCE) == 0
    assert seen == [list(range(20))] * 3
    assert consensus.wait("k", 19, 0.01) is False
    assert consensus.wait("absent", -1, 0.01) is False
    consensus.close()


def test_a_writer_of_the_same_handle_wakes_those_who_wait(tmp_path):
    consensus = SqliteConsensus(tmp_path / "c.db")
    results = []
    waiting = [
        threading.Thread(target=lambda: results.append(consensus.wait("k", -1, 30.0)))
        for _ in range(4)
    ]
    for thread in waiting:
        thread.start()
    consensus.compare_and_set("k", None, Versioned(0, b"x"))
    for thread in waiting:
        thread.join()
    assert results == [True] * 4
    consensus.close()


def test_nothing_is_acknowledged_into_a_file_that_is_gone(tmp_path) -> None:
    path = tmp_path / "c.db"
    consensus = SqliteConsensus(path)
    assert consensus.compare_and_set("k", None, Versioned(0, b"a"))
    moved = path.rename(tmp_path / "moved.db")
    with pytest.raises(Determinate, match="removed or replaced"):
        consensus.compare_and_set("k", 0, Versioned(1, b"b"))
    moved.rename(path)
    assert consensus.head("k") == Versioned(0, b"a")
