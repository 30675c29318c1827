"""Formats: environments of every format that was released open, and what a newer version has written is refused untouched."""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import mzsql
from mzsql.adapter.environment.environment import CATALOG_SHARD
from mzsql.adapter.environment.locations import locate
from mzsql.adapter.environment.opening import open_persist
from mzsql.catalog import durable, migrations
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


# --- steps from one format to the next ---------------------------------------------------------


def comments(entries: migrations.Entries, to: Callable[[str], str]) -> dict[str, bytes | None]:
    """Every comment's text made another."""
    of = {key: value for key, value in entries.items() if key.startswith("comment/")}
    return {key: json.dumps(to(json.loads(value))).encode() for key, value in of.items()}


def to_two(entries: migrations.Entries) -> dict[str, bytes | None]:
    """Comments begin with a capital letter."""
    return comments(entries, str.capitalize)


def to_three(entries: migrations.Entries) -> dict[str, bytes | None]:
    """Comments end with a full stop, and a cluster's id is another one."""
    changed = comments(entries, lambda text: f"{text}.")
    (old,) = (
        key
        for key, value in entries.items()
        if key.startswith("cluster/") and json.loads(value)["name"] == "side"
    )
    side = json.loads(entries[old])
    changed |= {old: None, "cluster/u90": json.dumps({**side, "id": "u90"}).encode()}
    for key, value in entries.items():
        if (
            key.startswith("replica/")
            and (replica := json.loads(value))["cluster_id"] == side["id"]
        ):
            changed[key] = json.dumps({**replica, "cluster_id": "u90"}).encode()
    return changed


@pytest.fixture
def newer() -> Iterator[pytest.MonkeyPatch]:
    """A program whose catalog has come two steps farther, until that is undone."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(migrations, "STEPS", {1: to_two, 2: to_three})
        patched.setattr(durable, "FORMAT_VERSION", 3)
        yield patched


@pytest.fixture
def env(tmp_path: Path) -> str:
    shutil.unpack_archive(KEPT / "0.1.0.zip", tmp_path)
    return str(tmp_path / "env")


def seen(con: mzsql.Connection) -> tuple[str, list[tuple[str]]]:
    ((comment,),) = con.execute(
        "SELECT comment FROM mz_internal.mz_comments WHERE id LIKE 'u%'"
    ).fetchall()
    clusters = con.execute("SELECT id FROM mz_clusters WHERE name = 'side'").fetchall()
    return comment, clusters


MIGRATED = ("What was ordered.", [("u90",)])


def test_every_format_has_a_step_to_the_next() -> None:
    assert sorted(migrations.STEPS) == list(range(1, durable.FORMAT_VERSION))


@pytest.mark.usefixtures("newer")
def test_a_catalog_of_an_older_format_is_read_through_the_steps_by_who_does_not_write(
    env: str,
) -> None:
    before = entries(env)
    for options in ({"read_only": True}, {"deploy_generation": 1}):
        with mzsql.connect(env, **options) as con:
            assert seen(con) == MIGRATED
            assert con.execute("SELECT n FROM shop.totals").fetchall() == [(2,)]
        assert entries(env) == before


def test_the_first_change_of_one_in_charge_writes_the_steps_along(
    env: str, newer: pytest.MonkeyPatch
) -> None:
    with mzsql.connect(env) as con:
        assert seen(con) == MIGRATED
        con.execute("CREATE TABLE shop.more (a int)")
        assert seen(con) == MIGRATED
        for question, answer in ANSWERS.items():
            if "comments" not in question:
                assert con.execute(question).fetchall() == answer, question
    now = entries(env)
    assert json.loads(now[migrations.META])["format_version"] == 3
    assert "cluster/u2" not in now
    with mzsql.connect(env) as con:
        assert seen(con) == MIGRATED, "no step is done twice"
    newer.undo()
    before = entries(env)
    with pytest.raises(mzsql.OperationalError, match="its format is 3, this one knows up to 1"):
        mzsql.connect(env)
    assert entries(env) == before
