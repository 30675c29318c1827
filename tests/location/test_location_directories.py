"""Directories whose parents may be entered and not be listed."""

from __future__ import annotations

import os
from pathlib import Path

from mzsql.location.file import FileBlob


def test_a_root_below_a_directory_that_cannot_be_listed(monkeypatch, tmp_path):
    """What cannot be opened cannot be fsynced: everything is written out instead, once, and the write succeeds."""
    closed = tmp_path / "closed"
    root = closed / "blob"
    root.mkdir(parents=True)
    real = os.open
    synced = []

    def guarded(path, *more, **named):
        if not isinstance(path, int) and Path(path) == closed:
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *more, **named)

    monkeypatch.setattr(os, "open", guarded)
    monkeypatch.setattr(os, "sync", lambda: synced.append(True))
    blob = FileBlob(root)
    blob.set("s1/a", b"a")
    blob.set("s1/b", b"b")
    assert blob.get("s1/a") == b"a"
    assert synced == [True]
