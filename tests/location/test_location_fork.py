"""Processes that fork with open handles: what either side acknowledged stays, nobody hangs, and no descriptor is left."""

from __future__ import annotations

import os
import sqlite3
import sys
import threading
import time
from pathlib import Path

import pytest

from mzsql.location import (
    InvalidUrl,
    PluginWarning,
    Registry,
    UnknownScheme,
    Versioned,
    hookimpl,
)
from mzsql.location import connections as module
from mzsql.location.file import FileBlob
from mzsql.location.mem import MemBlob
from mzsql.location.sqlite import SqliteConsensus, SqliteOracle
from mzsql.location.watch import watch_directory

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")


def _descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


def _in_child(act):
    """Run ``act()`` in a forked process; its text."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            text = str(act())
        except BaseException as failure:
            text = f"{type(failure).__name__}: {failure}"
        os.write(write, text.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as answer:
        text = answer.read().decode()
    os.waitpid(pid, 0)
    return text


@pytest.mark.parametrize("more", [0, 1], ids=["one handle", "several"])
def test_what_a_child_commits_outlives_the_parents_handles(tmp_path, more):
    """A parent that closes its last connection deletes the log, unless SQLite knows that the child uses it."""
    path = tmp_path / "c.db"
    handles = [SqliteConsensus(path) for _ in range(1 + more)]
    oracle = SqliteOracle(path, "t", lambda: 1)
    consensus = handles[0]
    consensus.compare_and_set("k", None, Versioned(0, b"parent"))
    child_read, parent_write = os.pipe()
    parent_read, child_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        consensus.compare_and_set("k", 0, Versioned(1, b"child"))
        os.write(child_write, b".")
        os.read(child_read, 1)
        done = consensus.compare_and_set("k", 1, Versioned(2, b"child"))
        os._exit(0 if done else 1)
    assert os.read(parent_read, 1) == b"."
    for handle in (*handles, oracle):
        handle.close()
    os.write(parent_write, b".")
    assert os.waitpid(pid, 0)[1] == 0
    for end in (child_read, child_write, parent_read, parent_write):
        os.close(end)
    again = SqliteConsensus(path)
    assert [entry.seqno for entry in again.scan("k", 0, 10)] == [0, 1, 2]
    again.close()
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


def test_a_fork_while_somebody_waits(tmp_path):
    """A follower that waits neither keeps a fork waiting nor is left out afterwards, in either process."""
    consensus = SqliteConsensus(tmp_path / "c.db")
    seen = threading.Event()

    def follow():
        while not consensus.wait("k", -1, 30.0):
            pass
        seen.set()

    follower = threading.Thread(target=follow)
    follower.start()
    while not consensus._polling:
        time.sleep(0.001)

    def child():
        won = consensus.compare_and_set("k", None, Versioned(0, b"child"))
        return won and consensus.wait("k", -1, 30.0)

    assert _in_child(child) == "True"
    follower.join(30)
    assert seen.is_set()
    consensus.close()


def test_a_child_of_a_process_in_the_middle_of_a_statement_is_refused(tmp_path, monkeypatch):
    """Where a connection was inherited SQLite cannot be trusted: a typed error, and the parent goes on."""
    monkeypatch.setattr(module, "_FORK_SECONDS", 0.05)
    consensus = SqliteConsensus(tmp_path / "c.db")
    with consensus._database.lend():
        told = _in_child(lambda: consensus.head("k"))
        fresh = _in_child(lambda: SqliteConsensus(tmp_path / "c.db").head("k"))
    assert told.startswith("Determinate: ")
    assert "forked" in told
    assert "forked" in fresh
    assert consensus.compare_and_set("k", None, Versioned(0, b"parent"))
    assert _in_child(lambda: consensus.head("k").data) == "b'parent'"
    consensus.close()


def test_handles_leave_no_descriptors(tmp_path):
    """However many were opened, waited with, and closed."""

    def once():
        consensus = SqliteConsensus(tmp_path / "c.db")
        head = consensus.head("k")
        expected = None if head is None else head.seqno
        consensus.compare_and_set(
            "k", expected, Versioned(0 if head is None else expected + 1, b"")
        )
        consensus.wait("k", 10**6, 0.0)
        consensus.close()

    once()
    before = _descriptors()
    for _ in range(30):
        once()
    assert _descriptors() <= before


@pytest.mark.skipif(sys.platform != "linux", reason="no watches elsewhere")
def test_a_watch_that_cannot_be_made_leaves_no_descriptor(tmp_path, monkeypatch):
    """Without descriptors left there is no watch, and whoever waits polls."""

    def none_left(*_):
        raise OSError(24, "Too many open files")

    before = _descriptors()
    monkeypatch.setattr(os, "eventfd", none_left)
    assert watch_directory(tmp_path) is None
    assert _descriptors() <= before


def test_a_repeated_deletion_is_durable(tmp_path, monkeypatch):
    """A deletion whose fsync failed is repeated: that the file is gone does not mean that its entry is."""
    blob = FileBlob(tmp_path / "blob")
    blob.set("s1/a", b"a")
    blob.set("s1/b", b"b")
    synced = []
    real = os.fsync

    def failing(descriptor):
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        if len(synced) == 1:
            raise OSError(5, "Input/output error")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(Exception, match="cannot delete"):
        blob.delete("s1/a")
    assert blob.delete("s1/a") is None
    assert synced == [str(tmp_path / "blob" / "s1")] * 2


def test_what_several_plugins_opened_is_closed():
    """Plugins that do not say what they serve are all asked; where two answer, the answers of both are closed."""
    closed = []

    class Backend(MemBlob):
        def close(self):
            closed.append(self)

    class Opens:
        @hookimpl
        def mzsql_open_blob(self, url):
            return Backend() if url.scheme == "thing" else None

    registry = Registry([("one", Opens()), ("two", Opens())], discover=False)
    with pytest.raises(UnknownScheme, match="one, two"):
        registry.open_blob("thing:there")
    assert len(closed) == 2


def test_a_plugin_that_fails_leaves_what_another_opened():
    """A plugin that does not say what it serves may stumble over the URL of another one."""

    class Opens:
        @hookimpl
        def mzsql_open_blob(self, url):
            return MemBlob() if url.scheme == "thing" else None

    class Fails:
        @hookimpl
        def mzsql_open_blob(self, url):
            raise InvalidUrl(f"no such thing: {url}")

    registry = Registry([("opens", Opens()), ("fails", Fails())], discover=False)
    with pytest.warns(PluginWarning, match="no such thing"):
        blob = registry.open_blob("thing:there")
    assert blob.get("key") is None
