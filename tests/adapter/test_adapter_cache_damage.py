"""Nothing that happens to the expression cache's shard keeps an environment from opening: it is set aside, told of, and built again."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

import mzsql
from mzsql.adapter.environment.environment import CATALOG_SHARD
from mzsql.catalog.change import Change
from mzsql.catalog.durable import DurableCatalog
from mzsql.catalog.durable_map import DurableMap
from mzsql.catalog.state import CatalogState
from mzsql.persist import PersistClient, Settings

DEFINED = (
    "ALTER SYSTEM SET step_engine = 'duckdb'",
    "CREATE TABLE t (a int, b int)",
    "INSERT INTO t VALUES (1, 2), (1, 3), (4, 5)",
    "CREATE VIEW v AS SELECT a, sum(b) AS s FROM t GROUP BY a",
    "CREATE MATERIALIZED VIEW m AS SELECT a, s FROM v WHERE s > 4",
    "CREATE MATERIALIZED VIEW n AS SELECT count(*) AS c FROM m",
)
EXPLAINED = "EXPLAIN PHYSICAL PLAN AS TEXT FOR MATERIALIZED VIEW m"

#: The id of a shard that is no expression cache.
FOREIGN = "s11111111-1111-4111-8111-111111111111"

Damage = Callable[[bytes], bytes | None]


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def flipped_at(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 0xFF]) + data[place + 1 :]


def flipped(data: bytes) -> bytes:
    return flipped_at(data, len(data) // 2)


def emptied(_: bytes) -> bytes:
    return b""


def gone(_: bytes) -> None:
    return None


def junk(_: bytes) -> bytes:
    return b"junk"


DAMAGES: dict[str, Damage] = {
    "cut": cut,
    "emptied": emptied,
    "flipped": flipped,
    "gone": gone,
    "junk": junk,
}


class Place:
    """An environment whose cache has a part, a rollup and entries of its log; damage is done to copies of it."""

    def __init__(self, path: Path) -> None:
        self.original = path / "original"
        self.path = path / "env"
        with mzsql.connect(self.original) as con:
            for text in DEFINED:
                con.execute(text)
            self.plan = con.execute(EXPLAINED).fetchall()
            self.shard = con.coordinator.env.cache_shard.current()
        with PersistClient.open(
            blob=f"file:{self.original}/blob",
            consensus=f"sqlite:{self.original}/consensus.db",
            background=False,
            settings=Settings(inline_bytes=0, rollup_interval=2),
        ) as client:
            entries = DurableMap(client, self.shard, "what another build has written")
            for number in range(6):
                entries.apply(lambda _, n=number: {f"0/u{n}/global": bytes([n]) * 100})
            entries.close()
            client.maintain(self.shard)
        folder = self.original / "blob" / self.shard
        self.objects = [p.relative_to(self.original) for p in folder.rglob("*") if p.is_file()]
        with closing(sqlite3.connect(self.original / "consensus.db")) as database:
            found = database.execute(
                "SELECT sequence_number, data FROM consensus WHERE shard = ?", (self.shard,)
            )
            self.entries: dict[int, bytes] = dict(found.fetchall())
        assert self.objects
        assert self.entries

    def afresh(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        shutil.copytree(self.original, self.path)

    def damage_object(self, name: Path, damage: Damage) -> None:
        self.afresh()
        data = damage((self.path / name).read_bytes())
        if data is None:
            (self.path / name).unlink()
        else:
            (self.path / name).write_bytes(data)

    def damage_entry(self, seqno: int, damage: Damage) -> None:
        self.afresh()
        where = "WHERE shard = ? AND sequence_number = ?"
        changed = damage(self.entries[seqno])
        with closing(sqlite3.connect(self.path / "consensus.db")) as database, database:
            if changed is None:
                database.execute(f"DELETE FROM consensus {where}", (self.shard, seqno))
            else:
                database.execute(
                    f"UPDATE consensus SET data = ? {where}", (changed, self.shard, seqno)
                )

    def name_as_cache(self, shard: str) -> None:
        """Have the catalog say that the copy's cache is on another shard."""
        with PersistClient.open(
            blob=f"file:{self.path}/blob", consensus=f"sqlite:{self.path}/consensus.db"
        ) as client:
            catalog = DurableCatalog(client, CATALOG_SHARD)

            def command(state: CatalogState) -> tuple[Change, None]:
                assert state.meta is not None
                return Change(meta=msgspec.structs.replace(state.meta, cache_shard=shard)), None

            catalog.transact(command)
            catalog.close()
        self.shard = shard

    def contents_of(self, shard: str) -> object:
        """The rows of a shard of the copy's; None where it has none to be read."""
        with PersistClient.open(
            blob=f"file:{self.path}/blob", consensus=f"sqlite:{self.path}/consensus.db"
        ) as client:
            state = client.inspect(shard)
            if state is None or state.finalized:
                return None
            reader = client.open_reader(shard)
            rows = reader.snapshot_arrow(reader.since).to_pylist()
            reader.expire()
            return reader.upper, rows

    def opens_as_ever(self) -> bool:
        """Statements run and the plans are those of before, at the next opening from a cache; whether the shard had to be set aside."""
        with mzsql.connect(self.path) as con:
            assert sorted(con.execute("SELECT a, s FROM m").fetchall()) == [(1, 5), (4, 5)]
            assert con.execute("SELECT c FROM n").fetchall() == [(2,)]
            assert con.execute(EXPLAINED).fetchall() == self.plan
            assert con.coordinator.env.startup.wait(60)
            told = con.execute(
                "SELECT shard_id, reason FROM mz_internal.mz_expression_cache_damage WHERE entry IS NULL"
            ).fetchall()
        assert [shard for shard, _ in told] in ([], [self.shard])
        assert all(reason for _, reason in told)
        with mzsql.connect(self.path, read_only=True) as con:
            again = con.execute(
                "SELECT shard_id FROM mz_internal.mz_expression_cache_damage"
            ).fetchall()
            assert again == [(shard,) for shard, _ in told]
        with mzsql.connect(self.path) as con:
            assert con.execute("SELECT c FROM n").fetchall() == [(2,)]
            assert con.coordinator.env.startup.wait(60)
            hits, asked = con.plans_from_cache
            assert hits == asked == 2, "the cache was not built again"
        return bool(told)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_damaged_object_and_a_damaged_entry_are_set_aside(place: Place) -> None:
    rollup = next(name for name in place.objects if "rollup" in str(name))
    place.damage_object(rollup, flipped)
    assert place.opens_as_ever()
    place.damage_entry(max(place.entries), junk)
    assert place.opens_as_ever()


def _make(place: Place, act: Callable[[PersistClient], None]) -> None:
    with PersistClient.open(
        blob=f"file:{place.path}/blob", consensus=f"sqlite:{place.path}/consensus.db"
    ) as client:
        act(client)


def _of_another_format(client: PersistClient) -> None:
    """Of other columns, with a row."""
    writer = client.open_writer(FOREIGN, pa.schema([("plan", pa.int64())]))
    row = pa.table({"plan": [7], "mz_time": [3], "mz_diff": [1]})
    writer.compare_and_append(row, expected_upper=0, new_upper=4)
    writer.expire()


def _of_another_map(client: PersistClient) -> None:
    """Of the same columns, with keys that are none of a plan."""
    entries = DurableMap(client, FOREIGN, "something else")
    entries.apply(lambda _: {"table/7": b"seven", "view/8": b"eight"})
    entries.close()


def _sealed(client: PersistClient) -> None:
    """An expression cache's, but no entry can be added to it any more."""
    entries = DurableMap(client, FOREIGN, "expression cache")
    entries.apply(lambda _: {"0/u1/global": b"one"})
    entries.close()
    writer = client.open_writer(FOREIGN)
    upper = writer.fetch_upper()
    writer.compare_and_append(None, expected_upper=upper, new_upper=None)
    writer.expire()


def _deleted(client: PersistClient) -> None:
    """It was there, and was removed."""
    _of_another_map(client)
    client.finalize(FOREIGN)


@pytest.mark.parametrize("make", [_of_another_format, _of_another_map, _sealed, _deleted])
def test_a_foreign_shard_is_set_aside_as_it_is(
    place: Place, caplog: pytest.LogCaptureFixture, make: Callable[[PersistClient], None]
) -> None:
    place.afresh()
    _make(place, make)
    place.name_as_cache(FOREIGN)
    before = place.contents_of(FOREIGN)
    with caplog.at_level("WARNING"):
        assert place.opens_as_ever()
    told = [one.getMessage() for one in caplog.records if "is set aside" in one.getMessage()]
    assert [FOREIGN in one for one in told] == [True]
    assert place.contents_of(FOREIGN) == before


@pytest.mark.parametrize("whose", ["catalog", "log", "table"])
def test_a_shard_of_the_environment_is_no_cache_and_stays_what_it_is(
    place: Place, whose: str
) -> None:
    place.afresh()
    with mzsql.connect(place.path, read_only=True) as con:
        env = con.coordinator.env
        (table,) = (one for one in env.catalog.state.stored if one.name == "t")
        shard = {"catalog": CATALOG_SHARD, "log": env.meta.wal_shard, "table": table.shard}[whose]
    place.name_as_cache(shard)
    assert place.opens_as_ever()
    with mzsql.connect(place.path) as con:
        con.execute("INSERT INTO t VALUES (1, 1)")
        assert con.execute("SELECT s FROM m WHERE a = 1").fetchall() == [(6,)]


@pytest.mark.long
@pytest.mark.parametrize(
    "damage",
    [pytest.param(name, marks=pytest.mark.soak if name == "emptied" else ()) for name in DAMAGES],
)
def test_every_object_and_every_entry_may_be_damaged(place: Place, damage: str) -> None:
    aside = 0
    for name in place.objects:
        place.damage_object(name, DAMAGES[damage])
        aside += place.opens_as_ever()
    for seqno in place.entries:
        place.damage_entry(seqno, DAMAGES[damage])
        aside += place.opens_as_ever()
    assert aside


def test_a_process_that_only_reads_goes_on_without_a_cache(place: Place) -> None:
    place.damage_entry(max(place.entries), flipped)
    for _ in range(2):
        with mzsql.connect(place.path, read_only=True) as con:
            assert con.execute(EXPLAINED).fetchall() == place.plan
            ((shard, reason),) = con.execute(
                "SELECT shard_id, reason FROM mz_internal.mz_expression_cache_damage"
            ).fetchall()
            assert shard == place.shard
            assert reason


#: So many bytes of each object and entry are turned over, one at a time, evenly spread, the first and the last among them.
FLIPS = 12


@pytest.mark.soak
def test_any_byte_of_any_object_and_entry_may_be_another(place: Place) -> None:
    for name in place.objects:
        size = (place.original / name).stat().st_size
        for at in _spread(size):
            place.damage_object(name, lambda data, at=at: flipped_at(data, at))
            place.opens_as_ever()
    for seqno, entry in place.entries.items():
        for at in _spread(len(entry)):
            place.damage_entry(seqno, lambda data, at=at: flipped_at(data, at))
            place.opens_as_ever()


def _spread(size: int) -> list[int]:
    return sorted({number * (size - 1) // (FLIPS - 1) for number in range(FLIPS)})


def test_what_is_set_aside_is_logged(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    place.damage_entry(max(place.entries), emptied)
    with caplog.at_level("WARNING"):
        assert place.opens_as_ever()
    told = [one.getMessage() for one in caplog.records if "is set aside" in one.getMessage()]
    assert [place.shard in one for one in told] == [True]
