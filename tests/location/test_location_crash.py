"""Power lost between any two operations of the embedded file backend: what was acknowledged is there whole, nothing else is listed.

A model of a disk records what the backend does through ``os``; then, for every prefix of the operations, the directory is built as the
disk may hold it: synced bytes and entries surely, everything else in one of several ways (lost, or written out of order). After Pillai
et al., "All File Systems Are Not Created Equal" (OSDI 2014).
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mzsql.location import Indeterminate
from mzsql.location.file import FileBlob


class Node:
    """A file or directory of the model: what is in memory, and what a disk surely holds."""

    def __init__(self, *, directory):
        self.directory = directory
        self.now = {} if directory else b""
        self.synced = {} if directory else b""


class Disk:
    """Records ``os`` calls below ``base`` and replays any prefix of them into a directory."""

    def __init__(self, monkeypatch, base):
        self.base = str(base)
        self.log = []
        self.marks = []
        self._files = {}
        for name in ("open", "write", "fsync", "close", "rename", "unlink", "mkdir", "rmdir"):
            monkeypatch.setattr(os, name, getattr(self, "_" + name)(getattr(os, name)))

    def _relative(self, path):
        path = os.fspath(path)
        if path == self.base:
            return ()
        assert path.startswith(self.base + "/"), path
        return tuple(path[len(self.base) + 1 :].split("/"))

    def _inside(self, path):
        path = os.fspath(path) if not isinstance(path, int) else ""
        return path == self.base or path.startswith(self.base + "/")

    def acknowledge(self, what, key, value=None, *, since):
        """The caller was told that this happened; it began when ``since`` operations were in the log."""
        self.marks.append((since, len(self.log), what, key, value))

    def _open(self, real):
        def act(path, flags, mode=0o777, **more):
            descriptor = real(path, flags, mode, **more)
            if self._inside(path):
                self._files[descriptor] = self._relative(path)
                if flags & os.O_CREAT:
                    self.log.append(("create", self._relative(path)))
            return descriptor

        return act

    def _write(self, real):
        def act(descriptor, data):
            written = real(descriptor, data)
            if descriptor in self._files:
                self.log.append(("write", self._files[descriptor], bytes(data[:written])))
            return written

        return act

    def _fsync(self, real):
        def act(descriptor):
            real(descriptor)
            if descriptor in self._files:
                self.log.append(("fsync", self._files[descriptor]))

        return act

    def _close(self, real):
        def act(descriptor):
            self._files.pop(descriptor, None)
            real(descriptor)

        return act

    def _rename(self, real):
        def act(source, target):
            real(source, target)
            self.log.append(("rename", self._relative(source), self._relative(target)))

        return act

    def _unlink(self, real):
        def act(path, **more):
            real(path, **more)
            if self._inside(path):
                self.log.append(("unlink", self._relative(path)))

        return act

    def _mkdir(self, real):
        def act(path, mode=0o777, **more):
            real(path, mode, **more)
            if self._inside(path):
                self.log.append(("mkdir", self._relative(path)))

        return act

    def _rmdir(self, real):
        def act(path, **more):
            real(path, **more)
            if self._inside(path):
                self.log.append(("rmdir", self._relative(path)))

        return act


def replay(log):
    """The root of the model's tree after these operations."""
    root = Node(directory=True)

    def find(path):
        node = root
        for part in path:
            node = node.now[part]
        return node

    for act, path, *more in log:
        if act == "fsync":
            node = find(path)
            node.synced = dict(node.now) if node.directory else node.now
        elif act == "write":
            find(path).now += more[0]
        elif act in ("create", "mkdir"):
            find(path[:-1]).now[path[-1]] = Node(directory=act == "mkdir")
        elif act in ("unlink", "rmdir"):
            del find(path[:-1]).now[path[-1]]
        else:
            [target] = more
            node = find(path[:-1]).now.pop(path[-1])
            find(target[:-1]).now[target[-1]] = node
    return root


def build(node, place, entries, contents):
    """Write out what the disk holds: entries "synced", "now" or both, contents "synced", "now" or cut in half."""
    found = {
        "synced": node.synced,
        "now": node.now,
        "both": {**node.synced, **node.now},
    }[entries]
    for name, child in found.items():
        target = place / name
        if child.directory:
            target.mkdir(0o700)
            build(child, target, entries, contents)
        else:
            data = child.synced if contents == "synced" else child.now
            if contents == "torn" and child.now != child.synced:
                data = child.now[: len(child.now) // 2]
            target.write_bytes(data)


def objects(place):
    """What is listed, with the values, through a new handle; `None` where not even the root is there."""
    if not (place / "blob").exists():
        return {}
    blob = FileBlob(place / "blob")
    return {key: blob.get(key) for key, _ in blob.list_keys_and_metadata("")}


def check(disk, tmp_path, values):
    """Lose power after every prefix, in every way; how many crash points that were, and how many lost something."""
    points, losses = 0, []
    for end in range(len(disk.log) + 1):
        root = replay(disk.log[:end])
        told = {}
        doubtful = set()
        for since, at, what, key, value in disk.marks:
            if at > end:
                if since < end:
                    doubtful.add(key)  # under way: as before or as after, but whole
            elif what == "set":
                told[key] = value
            else:
                told.pop(key, None)
        for entries in ("synced", "now", "both"):
            for contents in ("synced", "now", "torn"):
                points += 1
                place = tmp_path / f"crash-{points}"
                place.mkdir(0o700)
                build(root, place, entries, contents)
                found = objects(place)
                losses += [
                    (end, entries, contents, key, "lost")
                    for key, value in told.items()
                    if key not in doubtful and found.get(key) != value
                ]
                losses += [
                    (end, entries, contents, key, "half-written or back from the dead")
                    for key, value in found.items()
                    if value not in values[key]
                    or (key not in told and key not in doubtful and entries == "synced")
                ]
    return points, losses


def run(monkeypatch, tmp_path, workload):
    base = tmp_path / "disk"
    base.mkdir(0o700)
    values = {}
    with monkeypatch.context() as patched:
        disk = Disk(patched, base)
        blob = FileBlob(base / "blob")

        def put(key, value):
            values.setdefault(key, []).append(value)
            since = len(disk.log)
            blob.set(key, value)
            disk.acknowledge("set", key, value, since=since)

        workload(blob, put, disk)
    return check(disk, tmp_path, values)


def test_set_and_delete(monkeypatch, tmp_path):
    def workload(blob, put, disk):
        put("s1/a", b"first" * 10)
        put("s1/b", b"second" * 10)
        put("s1/a", b"overwritten, and longer" * 10)
        put("s2/deep/er/c", b"third" * 10)
        for key in ("s1/a", "s2/deep/er/c"):
            since = len(disk.log)
            blob.delete(key)
            disk.acknowledge("delete", key, since=since)
        put("s2/deep/er/d", b"in directories made anew")

    points, losses = run(monkeypatch, tmp_path, workload)
    assert points > 300
    assert losses == []


def test_delete_many(monkeypatch, tmp_path):
    def workload(blob, put, disk):
        keys = [f"s1/{n}" for n in range(3)] + ["s2/x/0"]
        for key in keys:
            put(key, key.encode() * 20)
        put("s1/kept", b"kept" * 9)
        since = len(disk.log)
        blob.delete_many([*keys, "s1/absent", "absent/absent"])
        for key in keys:
            disk.acknowledge("delete", key, since=since)

    points, losses = run(monkeypatch, tmp_path, workload)
    assert points > 200
    assert losses == []


def test_make_durable(monkeypatch, tmp_path):
    """Files that another program wrote by path, into directories that nobody synced; before, nothing was promised of them."""

    def workload(blob, _put, disk):
        for name in ("s1", "s1/spark", "s1/spark/w=1"):
            os.mkdir(blob.root / name, 0o700)  # noqa: PTH102
        keys = []
        for n in range(2):
            key = f"s1/spark/w=1/part-{n}"
            value = f"by path {n}".encode() * 9
            descriptor = os.open(blob.root / key, os.O_WRONLY | os.O_CREAT)
            os.write(descriptor, value)
            os.close(descriptor)
            keys.append((key, value))
        since = len(disk.log)
        blob.make_durable([key for key, _ in keys])
        for key, value in keys:
            disk.acknowledge("set", key, value, since=since)

    base = tmp_path / "disk"
    base.mkdir(0o700)
    with monkeypatch.context() as patched:
        disk = Disk(patched, base)
        blob = FileBlob(base / "blob")
        workload(blob, None, disk)
    root = replay(disk.log)
    for entries in ("synced", "both"):
        place = tmp_path / entries
        place.mkdir(0o700)
        build(root, place, entries, "synced")
        assert objects(place) == {key: value for *_, key, value in disk.marks}


def test_a_directory_somebody_else_made_is_made_durable(monkeypatch, tmp_path):
    """That a directory is there does not mean that a power loss leaves it there."""

    def workload(blob, put, _disk):
        os.mkdir(blob.root / "s1", 0o700)  # noqa: PTH102 - by a process that was killed before its fsync
        put("s1/a", b"value" * 5)

    points, losses = run(monkeypatch, tmp_path, workload)
    assert points > 50
    assert losses == []


def test_the_model_notices_a_missing_fsync(monkeypatch, tmp_path):
    """Without the fsync of directories, or of files, the same check finds losses."""
    for module, name in (
        ("mzsql.location.file", "fsync_directory"),
        ("mzsql.location.directories", "fsync_directory"),
    ):
        with monkeypatch.context() as broken:
            broken.setattr(f"{module}.{name}", lambda _directory: None)
            place = tmp_path / module
            place.mkdir(0o700)
            _, losses = run(monkeypatch, place, lambda _b, put, _d: put("s1/a", b"value" * 5))
            assert losses, module


def test_temporary_files_are_never_listed(tmp_path):
    blob = FileBlob(tmp_path)
    blob.set("a", b"1")
    (tmp_path / ".mzsql-tmp" / "left").write_bytes(b"half")
    for prefix in ("", ".", ".mzsql", ".mzsql-tmp", ".mzsql-tmp/", ".mzsql-tmp/l"):
        assert [key for key, _ in blob.list_keys_and_metadata(prefix)] == (
            ["a"] if prefix == "" else []
        )


def test_many_deletions_cost_one_fsync_a_directory(monkeypatch, tmp_path):
    blob = FileBlob(tmp_path)
    keys = [f"s{n % 2}/{n}" for n in range(20)]
    for key in keys:
        blob.set(key, b"x")
    blob.set("s0/kept", b"x")
    synced = []
    real = os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda descriptor: (synced.append(descriptor), real(descriptor))
    )
    blob.delete_many(keys)
    assert len(synced) == 2
    assert [key for key, _ in blob.list_keys_and_metadata("")] == ["s0/kept"]
    assert not (tmp_path / "s1").exists()


def test_a_set_after_the_first_costs_two_fsyncs(monkeypatch, tmp_path):
    """The object and its directory; the directories above are seen to once."""
    blob = FileBlob(tmp_path)
    blob.set("s1/a", b"x")
    synced = []
    real = os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda descriptor: (synced.append(descriptor), real(descriptor))
    )
    blob.set("s1/b", b"x")
    assert len(synced) == 2


def test_a_directory_that_cannot_be_synced_leaves_a_deletion_in_doubt(monkeypatch, tmp_path):
    blob = FileBlob(tmp_path)
    blob.set("s1/a", b"x")

    def failing(_directory):
        raise OSError(5, "injected")

    with monkeypatch.context() as broken:
        broken.setattr("mzsql.location.file.fsync_directory", failing)
        with pytest.raises(Indeterminate, match="injected"):
            blob.delete_many(["s1/a"])
    blob.delete_many(["s1/a"])
    assert list(blob.list_keys_and_metadata("")) == []
    assert Path(tmp_path).exists()
