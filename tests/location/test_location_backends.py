"""What the embedded backends promise beyond the contracts: URLs, files that survive kills, processes that share a database."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mzsql.location import (
    Determinate,
    InvalidUrl,
    Registry,
    UnknownScheme,
    UploadSweepable,
    UsageError,
    Versioned,
    hookimpl,
    local_path,
    local_url,
    open_blob,
    open_consensus,
    open_oracle,
    split_url,
)
from mzsql.location.file import FileBlob
from mzsql.location.mem import MemBlob
from mzsql.location.sqlite import SqliteConsensus, SqliteOracle
from mzsql.repr.errors import SqlError


def test_unknown_scheme_lists_what_is_installed():
    with pytest.raises(UnknownScheme) as caught:
        open_blob("nosuch://bucket/prefix")
    text = str(caught.value)
    assert "'nosuch'" in text
    assert "pip install mzsql-nosuch" in text
    for name in ("file", "mem", "sqlite"):
        assert name in text
    with pytest.raises(UnknownScheme, match="mzsql-no-such"):
        open_consensus("no+such://host/db")
    with pytest.raises(UnknownScheme, match="'file' serves a Blob store only"):
        open_oracle("file:x", "t", lambda: 0)  # served, but not as an oracle
    assert isinstance(caught.value, SqlError)


@pytest.mark.parametrize("url", ["", "no-scheme", "file:", "file://host/x", "file:x?y=1"])
def test_bad_urls(url):
    with pytest.raises(InvalidUrl):
        open_blob(url)


@pytest.mark.parametrize("path", ["./a b", "/x/ü%20?#", "rel/é", "/plain"])
def test_local_urls_round_trip(path):
    assert local_path(split_url(local_url("file", path))) == path


class _Twin:
    def __init__(self):
        self.opened = []

    @hookimpl
    def mzsql_open_blob(self, url):
        if url.scheme != "twin":
            return None
        blob = MemBlob()
        blob.close = lambda: self.opened.append("closed")
        return blob


def test_two_claims_are_refused_and_closed():
    one, two = _Twin(), _Twin()
    registry = Registry([("one", one), ("two", two)], discover=False)
    with pytest.raises(UnknownScheme, match=r"more than one plugin serves .*'twin': one, two"):
        registry.open_blob("twin:x")
    assert one.opened == two.opened == ["closed"]
    single = Registry([("one", one)], discover=False)
    assert isinstance(single.open_blob("twin:x"), MemBlob)


def test_a_broken_plugin_is_reported_and_harmless(tmp_path):
    package = tmp_path / "broken-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text("[mzsql]\nbroken = mzsql_broken_plugin\n")
    (tmp_path / "mzsql_broken_plugin.py").write_text("raise RuntimeError('boom')\n")
    code = (
        "from mzsql.location import open_blob\n"
        "open_blob('mem:').set('k', b'v')\n"
        "try:\n    open_blob('zz:')\n"
        "except Exception as e:\n    print(e)\n"
    )
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    ran = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
    )
    assert "broken (broken 1.0, failed to load: RuntimeError: boom)" in ran.stdout


def test_file_keys_are_paths(tmp_path):
    blob = FileBlob(tmp_path / "blob")
    blob.set("s1/part one.parquet", b"xyz")
    path = Path(blob.spark_path("s1/part one.parquet"))
    assert path == tmp_path / "blob" / "s1" / "part one.parquet"
    assert path.read_bytes() == b"xyz"
    outside = tmp_path / "blob" / "s1" / "spark" / "part-0"
    outside.parent.mkdir()
    outside.write_bytes(b"by path")
    blob.make_durable(["s1/spark/part-0"])
    assert blob.get("s1/spark/part-0") == b"by path"
    assert blob.delete("s1/spark/part-0") == 7
    assert not outside.parent.exists()  # directories left empty go too
    with pytest.raises(UsageError):
        blob.set(".mzsql-tmp/x", b"")
    with pytest.raises(UsageError, match="prefix"):
        blob.set("s1/part one.parquet/below", b"")
    with pytest.raises(Determinate):
        blob.make_durable(["absent"])


def test_file_refuses_a_root_that_is_a_file(tmp_path):
    (tmp_path / "f").write_text("")
    with pytest.raises(Determinate, match="cannot open"):
        FileBlob(tmp_path / "f")


_WRITER = """
import os, signal, sys
from mzsql.location.file import FileBlob
blob = FileBlob(sys.argv[1])
calls = ("open", "write", "fsync", "close", "rename")

def write(n):
    for key in range(4):
        blob.set(f"k/{key}", bytes([n]) * 3_000_000)

def before(real, left):
    def act(*args, **more):
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*args, **more)
    return act

write(0)
for moment in range(1, 1000):
    child = os.fork()
    if child == 0:
        left = [moment]
        for name in calls:
            setattr(os, name, before(getattr(os, name), left))
        write(moment % 251)
        os._exit(0)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0:
        break
    print("killed", flush=True)
    sys.stdin.readline()
"""


def test_file_survives_sigkill(tmp_path):
    """Before whichever call of the system the writer is killed, only whole objects are listed."""
    process = subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    kills = 0
    while process.stdout.readline() == "killed\n":
        kills += 1
        blob = FileBlob(tmp_path)
        listed = dict(blob.list_keys_and_metadata(""))
        assert set(listed) == {f"k/{i}" for i in range(4)}
        for key, size in listed.items():
            value = blob.get(key)
            assert size == len(value) == 3_000_000
            assert value == value[:1] * 3_000_000
        process.stdin.write("go on\n")
        process.stdin.flush()
    process.stdin.close()
    assert process.wait() == 0
    assert kills >= 4 * 4


@pytest.mark.parametrize("days", [-400, 0, 400])
def test_stale_temporary_files_are_swept(tmp_path, monkeypatch, days):
    """By the clock of the file system, whatever the machine's shows."""
    really = time.time
    monkeypatch.setattr(time, "time", lambda: really() + days * 86_400)
    blob = FileBlob(tmp_path)
    old, new = tmp_path / ".mzsql-tmp" / "old", tmp_path / ".mzsql-tmp" / "new"
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (really() - 100_000,) * 2)
    other = FileBlob(tmp_path)
    other.get("k")
    assert old.exists()  # whoever only reads changes nothing
    found = {u.upload: (u.key, u.size) for u in other.list_unfinished()}
    assert found == {"old": ("", 4), "new": ("", 4)}
    other.set("k", b"v")
    assert not old.exists()
    assert new.exists()
    assert list(blob.list_keys_and_metadata("")) == [("k", 1)]


def test_unfinished_writes_are_given_up_on_request(tmp_path):
    blob = FileBlob(tmp_path)
    assert isinstance(blob, UploadSweepable)
    (tmp_path / ".mzsql-tmp" / "half").write_bytes(b"half")
    [unfinished] = blob.list_unfinished()
    assert abs(unfinished.started_ms / 1000 - time.time()) < 3600
    blob.abort_unfinished(unfinished)
    blob.abort_unfinished(unfinished)
    assert list(blob.list_unfinished()) == []
    blob.set("kept", b"v")
    with pytest.raises(UsageError):
        blob.abort_unfinished(unfinished._replace(upload="../kept"))
    assert blob.get("kept") == b"v"


def _append(path, name, count):
    consensus = SqliteConsensus(path)
    oracle = SqliteOracle(path, "t", lambda: 0)
    for _ in range(count):
        while True:
            head = consensus.head("k")
            expected = None if head is None else head.seqno
            seqno = 0 if expected is None else expected + 1
            entry = f"{name}:{oracle.write_ts()}".encode()
            if consensus.compare_and_set("k", expected, Versioned(seqno, entry)):
                break


def test_sqlite_between_processes(tmp_path):
    path = str(tmp_path / "one.db")
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_append, args=(path, i, 25)) for i in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    entries = SqliteConsensus(path).scan("k", 0, 1000)
    assert [e.seqno for e in entries] == list(range(50))
    names, stamps = zip(*(e.data.decode().split(":") for e in entries), strict=True)
    assert sorted(names) == ["0"] * 25 + ["1"] * 25
    assert len(set(stamps)) == 50


def test_sqlite_errors_are_typed(tmp_path):
    (tmp_path / "not.db").write_bytes(b"this is not a database" * 100)
    with pytest.raises(Determinate, match="not a database"):
        SqliteConsensus(tmp_path / "not.db")
    consensus = SqliteConsensus(tmp_path / "a.db")
    consensus.close()
    consensus.close()
    with pytest.raises(Determinate, match="closed"):
        consensus.head("k")


def test_a_listing_that_cannot_be_made_is_an_error_not_a_short_list(tmp_path):
    blob = FileBlob(tmp_path)
    blob.set("a/b", b"1")
    (tmp_path / "loop").symlink_to("loop")
    assert list(blob.list_keys_and_metadata("a/")) == [("a/b", 1)]
    for prefix in ("", "loop/"):
        with pytest.raises(Determinate, match="cannot list"):
            list(blob.list_keys_and_metadata(prefix))
