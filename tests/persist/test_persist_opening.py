"""Opening a client of two stores: all of it, or nothing stays open."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from mzsql.persist import PersistClient


def _open_files(below: Path) -> list[str]:
    links = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            links.append(str(descriptor.readlink()))
    return [link for link in links if link.startswith(str(below))]


def test_a_client_that_cannot_be_made_leaves_no_store_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    urls = {"blob": f"file:{tmp_path}/blob", "consensus": f"sqlite:{tmp_path}/consensus.db"}
    PersistClient.open(**urls).close()

    def no_thread(_: object) -> None:
        assert _open_files(tmp_path)
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("mzsql.persist.client.BackgroundWork.start", no_thread)
    with pytest.raises(RuntimeError, match="new thread"):
        PersistClient.open(**urls)
    assert not _open_files(tmp_path)
