"""Storage-managed collections: first in, first out; deletions cover earlier processes; conflicts are reconciled."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from mzsql.location import Determinate, Indeterminate, Versioned, open_blob, open_consensus
from mzsql.location.mem import MemBlob, MemConsensus
from mzsql.persist import PersistClient, Settings
from mzsql.persist.commands import ExpireReader, ExpireWriter
from mzsql.repr.errors import NotReadable, UndefinedTable
from mzsql.repr.ids import GlobalId
from mzsql.repr.types import BOOLEAN, INTERVAL, TEXT, ColumnType
from mzsql.storage import CollectionManager, ManagedKind

COLUMNS = (ColumnType(TEXT), ColumnType(BOOLEAN), ColumnType(INTERVAL))
STATUS = GlobalId("s7")


class Site:
    def __init__(self, path: Path) -> None:
        self.blob = open_blob(f"file:{path}/blob")
        self.consensus = open_consensus(f"sqlite:{path}/consensus.db")
        self.clients: list[PersistClient] = []
        self.shard = self.client().new_shard_id()

    def client(self) -> PersistClient:
        client = PersistClient(self.blob, self.consensus, background=False)
        self.clients.append(client)
        return client

    def manager(self, *, differential: bool = True) -> CollectionManager:
        manager = CollectionManager(self.client())
        manager.register(
            STATUS, self.shard, COLUMNS, kind=ManagedKind(differential), name="statuses"
        )
        return manager

    def contents(self) -> list[tuple[str, bool, object, int]]:
        _, reader = self.client().open_shard(self.shard, _schema())
        upper = reader.fetch_upper()
        assert upper
        table = reader.snapshot_arrow(upper - 1)
        return sorted(
            (r["c0"], r["c1"], r["c2"] and r["c2"]["micros"], r["mz_diff"])
            for r in table.to_pylist()
        )


def _schema():
    from mzsql.repr.types import arrow_schema

    return arrow_schema(COLUMNS)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_commands_take_effect_in_their_order(site: Site) -> None:
    manager = site.manager()
    manager.append(STATUS, [(("r1", False, None), 1), (("r2", False, None), 1)])
    manager.delete(STATUS, lambda row: row[0] == "r1")
    manager.append(STATUS, [(("r1", True, (0, 0, 5)), 1)])
    manager.flush(STATUS)
    assert site.contents() == [("r1", True, 5, 1), ("r2", False, None, 1)]
    manager.append(STATUS, [(("r1", True, (0, 0, 5)), -1)])
    manager.close()
    assert site.contents() == [("r2", False, None, 1)]


@pytest.mark.parametrize("differential", [True, False])
def test_deletion_covers_rows_that_were_flushed_before(site: Site, differential: bool) -> None:
    manager = site.manager(differential=differential)
    manager.append(STATUS, [(("r1", True, None), 1)])
    manager.flush(STATUS)
    manager.append(STATUS, [(("r1", False, None), 1), (("r2", True, None), 1)])
    manager.delete(STATUS, lambda row: row[0] == "r1")
    manager.close()
    assert site.contents() == [("r2", True, None, 1)]


def test_a_new_process_retracts_what_a_dead_one_left_in_a_mirror(site: Site) -> None:
    first = site.manager()
    first.append(STATUS, [(("r1", True, (1, 2, 3)), 1)])
    first.flush(STATUS)
    second = site.manager()
    second.append(STATUS, [(("r9", False, None), 1)])
    second.flush(STATUS)
    assert site.contents() == [("r9", False, None, 1)]
    second.close()


def test_a_history_keeps_what_earlier_processes_wrote(site: Site) -> None:
    first = site.manager(differential=False)
    first.append(STATUS, [(("r1", True, None), 1)])
    first.close()
    second = site.manager(differential=False)
    second.append(STATUS, [(("r2", True, None), 1)])
    second.close()
    assert site.contents() == [("r1", True, None, 1), ("r2", True, None, 1)]


def test_two_writers_of_a_mirror_converge_on_the_one_that_writes_last(site: Site) -> None:
    one, two = site.manager(), site.manager()
    one.append(STATUS, [(("one", True, None), 1)])
    one.flush(STATUS)
    two.append(STATUS, [(("two", True, None), 1)])
    two.flush(STATUS)
    one.append(STATUS, [(("more", True, None), 1)])
    one.flush(STATUS)
    assert site.contents() == [("more", True, None, 1), ("one", True, None, 1)]
    one.close()
    two.close()


def test_lapsed_leases_stop_no_writer(site: Site) -> None:
    for differential in (True, False):
        site.shard = site.client().new_shard_id()
        manager = site.manager(differential=differential)
        for i in range(3):
            manager.append(STATUS, [(("a", True, None), 1), ((f"b{i}", False, None), 1)])
            manager.flush(STATUS)
            other = site.client()
            state = other.inspect(site.shard)
            assert state is not None
            machine = other._open(site.shard, None, None, None).shard
            for reader_id in state.readers:
                machine.apply(ExpireReader(reader_id), machine.context.deadline(5))
            for writer_id in state.writers:
                machine.apply(ExpireWriter(writer_id), machine.context.deadline(5))
        manager.delete(STATUS, lambda row: row[0] == "a")
        manager.flush(STATUS)
        assert [row[0] for row in site.contents()] == ["b0", "b1", "b2"]
        manager.close()


def test_a_deletion_reads_a_history_once(site: Site) -> None:
    manager = site.manager(differential=False)
    manager.append(STATUS, [((f"r{i}", True, None), 1) for i in range(20)])
    manager.flush(STATUS)
    collection = manager._collections[STATUS]
    reads = []
    read = collection._read
    collection._read = lambda: reads.append(1) or read()  # type: ignore[method-assign]
    manager.delete(STATUS, lambda row: row[0] != "r7")
    manager.flush(STATUS)
    assert [row[0] for row in site.contents()] == ["r7"]
    assert len(reads) == 1
    manager.close()


@pytest.mark.parametrize("differential", [True, False])
def test_what_is_old_is_deleted_and_a_history_read_only_where_something_may_be(
    site: Site, differential: bool
) -> None:
    first = site.manager(differential=False)
    first.append(STATUS, [(("01", True, None), 1)])
    first.close()
    manager = site.manager(differential=differential)
    collection = manager._collections[STATUS]
    reads: list[int] = []
    read = collection._read
    collection._read = lambda: reads.append(1) or read()  # type: ignore[method-assign]

    def expire(before: str, *added: str) -> int:
        """How often it was read for that."""
        reads.clear()
        manager.append(STATUS, [((one, True, None), 1) for one in added])
        manager.expire(STATUS, before)
        manager.flush(STATUS)
        return len(reads)

    manager.append(STATUS, [((one, True, None), 1) for one in ("03", "05", "05", "09")])
    expire("04", "08")
    assert [(row[0], row[3]) for row in site.contents()] == [("05", 2), ("08", 1), ("09", 1)]
    assert expire("05", "06") == 0
    assert expire("05", "02") == (not differential)
    assert [row[0] for row in site.contents()] == ["05", "06", "08", "09"]
    assert expire("07") == (not differential)
    assert expire("08") == 0
    assert expire("99") == (not differential)
    assert site.contents() == []
    assert expire("99") == 0
    assert expire("10", "12") == 0
    assert [row[0] for row in site.contents()] == ["12"]
    manager.close()


def test_what_is_old_is_looked_for_again_where_another_process_wrote(site: Site) -> None:
    one, two = (site.manager(differential=False) for _ in range(2))
    rng, model = random.Random(7), list[int]()
    for _ in range(60):
        manager = rng.choice((one, two))
        before = rng.randrange(60, 100)
        for age in (rng.randrange(50, 100) for _ in range(rng.randrange(3))):
            manager.append(STATUS, [((str(age), True, None), 1)])
            model.append(age)
        if rng.random() < 0.6:
            manager.expire(STATUS, str(before))
            model = [age for age in model if age >= before]
        manager.flush(STATUS)
        assert [int(row[0]) for row in site.contents() for _ in range(row[3])] == sorted(model)
    one.close()
    two.close()


def test_rows_that_come_after_those_of_another_collection_are_written_after_them(
    site: Site,
) -> None:
    manager = CollectionManager(site.client())
    other, shard = GlobalId("s8"), site.client().new_shard_id()
    kind = ManagedKind(True, pause=3600.0)
    manager.register(other, shard, COLUMNS, kind=kind, name="times")
    manager.register(STATUS, site.shard, COLUMNS, kind=ManagedKind(True), name="statuses")
    # From now on it rests for an hour, unless it is hastened.
    manager.flush(other)
    seen: list[int] = []
    collection = manager._collections[STATUS]
    append = collection._append

    def after_the_other(updates: object, at: int) -> None:
        reader = site.client().open_reader(shard)
        seen.append(reader.snapshot_arrow((reader.fetch_upper() or 0) - 1).num_rows)
        append(updates, at)  # type: ignore[arg-type]

    collection._append = after_the_other  # type: ignore[method-assign]
    for number in range(1, 4):
        manager.append(other, [((f"r{number}", True, None), 1)])
        manager.append(STATUS, [((f"r{number}", True, None), 1)], after=other)
        manager.flush(STATUS)
        assert seen[-1] == number
    # One that fails, or has ended, keeps nothing from being written.
    failing = manager._collections[other]
    failing._write = lambda _: pytest.fail("planted")  # type: ignore[method-assign]
    manager.append(other, [(("r4", True, None), 1)])
    manager.append(STATUS, [(("r4", True, None), 1)], after=other)
    manager.flush(STATUS)
    assert seen[-1] == 3
    assert len(site.contents()) == 4
    manager.close()


@pytest.mark.parametrize("differential", [True, False])
def test_history_is_given_up_now_and_then(site: Site, differential: bool) -> None:
    manager = site.manager(differential=differential)
    manager.append(STATUS, [(("r", True, None), 1)])
    manager.flush(STATUS)
    begun = site.consensus.head(site.shard)
    for i in range(40):
        manager.append(STATUS, [((f"r{i}", True, None), 1), ((f"r{i - 1}", True, None), -1)])
        manager.flush(STATUS)
    ended = site.consensus.head(site.shard)
    assert begun is not None
    assert ended is not None
    # Beside the writes themselves: one now and then that lets go of history, and merges, one for each few batches.
    assert 40 <= ended.seqno - begun.seqno < 60
    state = site.client().inspect(site.shard)
    assert state is not None
    assert state.since is not None
    assert state.since > 0
    manager.close()


def test_what_comes_while_pauses_grow_is_written_by_who_waits_for_it(site: Site) -> None:
    manager = CollectionManager(site.client())
    kind = ManagedKind(True, pause=60.0, longest_pause=3600.0)
    manager.register(STATUS, site.shard, COLUMNS, kind=kind, name="statuses")
    for i in range(5):
        manager.append(STATUS, [((f"r{i}", True, None), 1)])
        manager.flush(STATUS)
        assert len(site.contents()) == i + 1
    manager.append(STATUS, [(("last", True, None), 1)])
    manager.close()
    assert len(site.contents()) == 6


class _Failing(MemConsensus):
    """A store that fails while told to: before a write happens, or after it did, so that nobody can tell."""

    fail: str | None = None

    def compare_and_set(self, key: str, expected: int | None, new: Versioned) -> bool:
        if self.fail == "before":
            raise Determinate("not now")
        done = super().compare_and_set(key, expected, new)
        if self.fail == "after":
            raise Indeterminate("who knows")
        return done

    def scan(self, key: str, from_seqno: int, limit: int) -> list[Versioned]:
        if self.fail == "after":
            raise Determinate("not now")
        return super().scan(key, from_seqno, limit)


@pytest.mark.parametrize("differential", [True, False])
@pytest.mark.parametrize("fail", ["before", "after"])
def test_an_outage_delays_writes_but_loses_and_repeats_none(differential: bool, fail: str) -> None:
    consensus = _Failing()
    client = PersistClient(MemBlob(), consensus, background=False, settings=Settings(timeout=0.1))
    manager = CollectionManager(client)
    shard = client.new_shard_id()
    manager.register(STATUS, shard, COLUMNS, kind=ManagedKind(differential), name="statuses")
    manager.append(STATUS, [(("a", True, None), 1)])
    manager.flush(STATUS)
    consensus.fail = fail
    manager.append(STATUS, [(("b", True, None), 1)])
    with pytest.raises(NotReadable):
        manager.flush(STATUS, 0.4)
    consensus.fail = None
    manager.append(STATUS, [(("c", True, None), 1)])
    manager.flush(STATUS, 60)
    reader = client.open_reader(shard)
    upper = reader.fetch_upper()
    assert upper
    rows = reader.snapshot_arrow(upper - 1).to_pylist()
    assert sorted((r["c0"], r["mz_diff"]) for r in rows) == [("a", 1), ("b", 1), ("c", 1)]
    consensus.fail = "before"
    manager.append(STATUS, [(("d", True, None), 1)])
    manager.close()  # does not wait for a backend that never answers


def test_a_deletion_that_another_process_made_meanwhile_is_not_made_twice(site: Site) -> None:
    one, two = (site.manager(differential=False) for _ in range(2))
    one.append(STATUS, [((name, True, None), 1) for name in ("a", "b", "c")])
    one.flush(STATUS)
    collection = two._collections[STATUS]
    append = collection._append

    def after_the_other(updates: object, at: int) -> None:
        collection._append = append  # type: ignore[method-assign]
        one.delete(STATUS, lambda row: row[0] != "c")
        one.append(STATUS, [(("d", True, None), 1)])
        one.flush(STATUS)
        append(updates, at)  # type: ignore[arg-type]

    collection._append = after_the_other  # type: ignore[method-assign]
    two.delete(STATUS, lambda row: row[0] in ("a", "c"))
    two.append(STATUS, [(("e", True, None), 1)])
    two.flush(STATUS)
    assert [(row[0], row[3]) for row in site.contents()] == [("d", 1), ("e", 1)]
    one.close()
    two.close()


@pytest.mark.parametrize("committed", [True, False])
def test_an_append_of_unknown_outcome_is_told_from_that_of_another_process(
    site: Site, committed: bool
) -> None:
    one, two = (site.manager(differential=False) for _ in range(2))
    collection = two._collections[STATUS]
    append, clock = collection._append, collection._clock

    def of_unknown_outcome(updates: object, at: int) -> None:
        collection._append = append  # type: ignore[method-assign]
        if committed:
            append(updates, at)  # type: ignore[arg-type]
        else:
            # At the very time at which this one would have been.
            one._collections[STATUS]._clock = Frozen(at)  # type: ignore[assignment]
            one.append(STATUS, [(("other", True, None), 1)])
            one.flush(STATUS)
        raise Indeterminate("who knows")

    class Frozen:
        def __init__(self, ms: int) -> None:
            self.ms = ms

        def now_ms(self) -> int:
            return self.ms

    collection._clock = Frozen(clock.now_ms())  # type: ignore[assignment]
    collection._append = of_unknown_outcome  # type: ignore[method-assign]
    two.append(STATUS, [(("mine", True, None), 1)])
    two.flush(STATUS)
    expected = ["mine"] if committed else ["mine", "other"]
    assert [(row[0], row[3]) for row in site.contents()] == [(name, 1) for name in expected]
    one.close()
    two.close()


def test_a_collection_that_nobody_registered_is_named_in_a_typed_error(site: Site) -> None:
    manager = site.manager()
    missing = GlobalId("s99")
    for act in (
        lambda: manager.append(missing, [(("a", True, None), 1)]),
        lambda: manager.delete(missing, bool),
        lambda: manager.expire(missing, "a"),
        lambda: manager.flush(missing),
    ):
        with pytest.raises(UndefinedTable, match="unknown catalog item 's99'"):
            act()
    manager.append(STATUS, [(("a", True, None), 1)])
    manager.close()
    with pytest.raises(UndefinedTable, match="a manager that was closed has none"):
        manager.append(STATUS, [(("b", True, None), 1)])
    assert [row[0] for row in site.contents()] == ["a"]


def test_a_bounded_history_keeps_its_latest_rows(site: Site) -> None:
    manager = CollectionManager(site.client())
    kind = ManagedKind(False, most_rows=3)
    manager.register(STATUS, site.shard, COLUMNS, kind=kind, name="history")
    for number in range(1, 10):
        manager.append(STATUS, [((f"r{number}", True, None), 1)])
        manager.flush(STATUS)
        kept = [row[0] for row in site.contents()]
        assert 3 <= len(kept) <= 6 or number < 3
        assert kept == [f"r{n}" for n in range(number - len(kept) + 1, number + 1)]
    manager.close()


def test_deletions_that_wait_are_bounded_too(site: Site) -> None:
    manager = site.manager(differential=False)
    manager._collections[STATUS]._most_waiting = 0
    with pytest.raises(Determinate, match="statuses cannot be written, and 0 deletions wait"):
        manager.delete(STATUS, lambda row: row[0] == "r1")
    manager.close()
