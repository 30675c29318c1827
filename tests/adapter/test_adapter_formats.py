"""Formats: environments of every format that was released open, and what a newer version has written is refused untouched."""

from __future__ import annotations

import contextlib
import shutil
import sys
from pathlib import Path

import pytest

import mzsql
from mzsql.adapter.environment.environment import CATALOG_SHARD
from mzsql.adapter.environment.locations import locate
from mzsql.adapter.environment.opening import open_persist
from mzsql.catalog.durable_map import DurableMap
from mzsql.persist import SystemClock

KEPT = Path(__file__).with_name("environments")
sys.path.insert(0, str(KEPT))

from make_environment import ANSWERS  # noqa: E402

NEWER = {
    "a newer format": (
        "meta/environment",
        b'{"format_version":2,"of":{"another":"shape"}}',
        "the catalog was written by a newer mzsql: its format is 2, this one knows up to 1",
    ),
    "a new kind": (
        "pipeline/u9",
        b'{"name":"p"}',
        'the catalog has an entry "pipeline/u9" that mzsql .* cannot read: there is no kind "pipeline"',
    ),
    "a new kind of object": (
        "item/u9",
        b'{"kind":"pipeline","id":"u9"}',
        'the catalog has an entry "item/u9" that mzsql .* cannot read: Invalid value',
    ),
    "another shape": (
        "cluster/u9",
        b'{"id":9}',
        'the catalog has an entry "cluster/u9" that mzsql .* cannot read: Expected `str`, got `int`',
    ),
    "no JSON": ("role/u9", b"\x00", 'the catalog has an entry "role/u9" that mzsql .* cannot read'),
}


def put(env: str, entries: dict[str, bytes]) -> None:
    """Change the catalog as another version might."""
    with contextlib.ExitStack() as undo:
        persist = open_persist(locate(env), undo, None, SystemClock())
        catalog = DurableMap(persist, CATALOG_SHARD, "catalog")
        undo.callback(catalog.close)
        catalog.apply(lambda _: entries)


def entries(env: str) -> dict[str, bytes]:
    with contextlib.ExitStack() as undo:
        persist = open_persist(locate(env), undo, None, SystemClock())
        table = persist.peek(CATALOG_SHARD)
        return dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))


@pytest.mark.parametrize("kept", sorted(KEPT.glob("*.zip")), ids=lambda path: path.stem)
def test_an_environment_of_each_format_that_was_released_opens(tmp_path: Path, kept: Path) -> None:
    shutil.unpack_archive(kept, tmp_path)
    env = str(tmp_path / "env")
    for _ in range(2):
        with mzsql.connect(env) as con:
            for question, answer in ANSWERS.items():
                assert con.execute(question).fetchall() == answer, question
    with mzsql.connect(env) as con:
        con.execute("INSERT INTO shop.orders VALUES (4, 'cy', 100, NULL)")
        con.execute("CREATE TABLE shop.more (a int); INSERT INTO shop.more VALUES (1)")
        assert con.execute("SELECT customer FROM shop.best").fetchall() == [("cy",)]
        assert con.execute("SELECT a FROM shop.more").fetchall() == [(1,)]


@pytest.mark.parametrize("newer", NEWER)
def test_a_catalog_that_a_newer_version_has_written_is_refused_untouched(
    tmp_path: Path, newer: str
) -> None:
    key, value, message = NEWER[newer]
    env = str(tmp_path / "env")
    with mzsql.connect(env) as con:
        con.execute("CREATE TABLE t (a int)")
    put(env, {key: value})
    before = entries(env)
    for read_only in (False, True):
        with pytest.raises(mzsql.OperationalError, match=message) as refused:
            mzsql.connect(env, read_only=read_only)
        assert "pgrade" in str(refused.value)
    assert entries(env) == before


def test_one_that_was_fenced_meanwhile_hears_of_that_first(tmp_path: Path) -> None:
    env = str(tmp_path / "env")
    deployment = b'{"generation":3,"who":"host 1","promoted_at":0}'
    with contextlib.closing(mzsql.connect(env)) as con:
        con.execute("CREATE TABLE t (a int)")
        put(env, {"pipeline/u9": b"{}", "deployment/current": deployment})
        with pytest.raises(mzsql.OperationalError, match="fenced by deploy generation 3, promoted"):
            con.execute("SELECT * FROM t")
