"""The write-ahead log and tables on it: atomic over tables, idempotent to apply, followed by every process."""

from __future__ import annotations

import copy
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from mzsql.location import Indeterminate, open_blob, open_consensus
from mzsql.persist import PersistClient, ReadHandle, UpperMismatch
from mzsql.persist.commands import ExpireReader
from mzsql.repr.errors import NotReadable, UndefinedTable
from mzsql.repr.ids import GlobalId
from mzsql.repr.types import INTEGER, TEXT, ColumnType
from mzsql.storage import Collection, Collections, Tables, WriteAheadLog, as_updates
from mzsql.storage.tables import BEHIND_BYTES, BEHIND_SECONDS, BEHIND_WRITES
from mzsql.storage.wal import REGISTER, WRITE, WalEntry, WalState, advance

COLUMNS = (ColumnType(INTEGER), ColumnType(TEXT))


def rows(*values: tuple[int, str], diff: int = 1) -> pa.Table:
    table = pa.table(
        {
            "c0": pa.array([v[0] for v in values], pa.int32()),
            "c1": pa.array([v[1] for v in values], pa.string()),
        }
    )
    return as_updates(table, diff)


class Process:
    """One process's handles on shared stores."""

    def __init__(
        self,
        blob: object,
        consensus: object,
        wal: str,
        shards: dict[str, str],
        delay: float = BEHIND_SECONDS,
    ) -> None:
        self.persist = PersistClient(blob, consensus, background=False)  # type: ignore[arg-type]
        self.wal = WriteAheadLog(self.persist, wal)
        self.tables = Tables(self.persist, self.wal, delay=delay)
        self.collections = Collections(self.persist, self.tables)
        self.shards = shards
        for name, shard in shards.items():
            self.collections.register(Collection(GlobalId(name), name, shard, COLUMNS))

    def write(self, ts: int, **tables: pa.Table) -> None:
        batches = {
            self.shards[n]: self.collections.table(GlobalId(n)).batch(t) for n, t in tables.items()
        }
        self.wal.commit(ts, batches, expected=self.wal.follow(), register=batches)

    def contents(self, name: str, as_of: int) -> list[tuple[int, str, int]]:
        table = self.collections.snapshot(GlobalId(name), as_of)
        return sorted(
            zip(
                table["c0"].to_pylist(),
                table["c1"].to_pylist(),
                table["mz_diff"].to_pylist(),
                strict=True,
            )
        )

    def close(self) -> None:
        self.collections.close()
        self.wal.close()
        self.persist.close()


@pytest.fixture
def stores(tmp_path: Path) -> tuple[object, object, str, dict[str, str]]:
    blob = open_blob(f"file:{tmp_path}/blob")
    consensus = open_consensus(f"sqlite:{tmp_path}/consensus.db")
    new = PersistClient(blob, consensus, background=False).new_shard_id
    return blob, consensus, new(), {"u1": new(), "u2": new()}


def test_a_commit_is_atomic_over_tables_and_visible_at_its_time(stores) -> None:
    one = Process(*stores)
    one.write(10, u1=rows((1, "a"), (2, "b")), u2=rows((3, "c")))
    one.write(20, u1=rows((1, "a"), diff=-1))
    assert one.contents("u1", 9) == []
    assert one.contents("u1", 10) == [(1, "a", 1), (2, "b", 1)]
    assert one.contents("u2", 19) == [(3, "c", 1)]
    assert one.contents("u1", 20) == [(2, "b", 1)]
    one.close()


def test_an_idle_table_is_readable_at_the_logs_upper_without_being_written(stores) -> None:
    one = Process(*stores)
    one.write(10, u1=rows((1, "a")))
    for ts in range(11, 40):
        one.write(ts, u2=rows((ts, "x")))
    assert one.contents("u1", 39) == [(1, "a", 1)]
    assert one.collections.upper(GlobalId("u1")) == 40
    assert one.collections.table(GlobalId("u1")).reader.fetch_upper() == 11
    one.close()


def test_updates_keep_their_times(stores) -> None:
    one = Process(*stores)
    one.write(10, u1=rows((1, "a")))
    one.write(15, u1=rows((2, "b")))
    one.write(20, u2=rows((9, "z")))
    found = one.collections.updates(GlobalId("u1"), 11, 21)
    assert found.select(["c0", "mz_time", "mz_diff"]).to_pylist() == [
        {"c0": 2, "mz_time": 15, "mz_diff": 1}
    ]
    assert one.collections.updates(GlobalId("u1"), 16, 21).num_rows == 0
    one.close()


def test_another_process_sees_and_applies_what_the_first_only_logged(stores) -> None:
    one, two = Process(*stores), Process(*stores)
    one.write(10, u1=rows((1, "a")))
    # Nothing has read the table, so its own shard is still empty: the second process applies the entry.
    assert one.collections.table(GlobalId("u1")).reader.fetch_upper() == 0
    assert two.contents("u1", 10) == [(1, "a", 1)]
    assert one.contents("u1", 10) == [(1, "a", 1)]
    two.write(11, u1=rows((2, "b")))
    assert one.contents("u1", 11) == [(1, "a", 1), (2, "b", 1)]
    one.close()
    two.close()


def test_a_commit_against_an_old_state_loses_and_changes_nothing(stores) -> None:
    one, two = Process(*stores), Process(*stores)
    stale = two.wal.follow()
    one.write(10, u1=rows((1, "a")))
    batch = two.collections.table(GlobalId("u1")).batch(rows((2, "b")))
    with pytest.raises(UpperMismatch):
        two.wal.commit(11, {stores[3]["u1"]: batch}, expected=stale, register=[stores[3]["u1"]])
    assert one.contents("u1", 11) == [(1, "a", 1)]
    one.close()
    two.close()


def test_a_forgotten_table_takes_no_more_writes(stores) -> None:
    one = Process(*stores)
    one.write(10, u1=rows((1, "a")))
    one.wal.commit(11, {}, expected=one.wal.follow(), forget=[stores[3]["u1"]])
    batch = one.collections.table(GlobalId("u1")).batch(rows((2, "b")))
    with pytest.raises(UndefinedTable, match="was dropped meanwhile"):
        one.wal.commit(12, {stores[3]["u1"]: batch}, expected=one.wal.follow())
    assert stores[3]["u1"] not in one.wal.state.live
    one.close()


def test_what_is_known_of_a_dropped_table_goes_with_it(stores) -> None:
    one = Process(*stores)
    one.write(10, u1=rows((1, "a")))
    (entry,) = one.wal.state.live[stores[3]["u1"]]
    assert one.contents("u1", 10) == [(1, "a", 1)]
    assert entry not in one.wal.applied
    one.collections.table(GlobalId("u1")).catch_up()
    assert entry in one.wal.applied
    one.collections.forget(GlobalId("u1"))
    assert entry not in one.wal.applied
    with pytest.raises(UndefinedTable):
        one.contents("u1", 10)
    one.close()


def test_an_idle_table_is_read_piece_by_piece_as_at_once(stores) -> None:
    one = Process(*stores)
    u1 = GlobalId("u1")
    one.write(5, u2=rows((9, "z")))
    one.write(10, u1=rows((1, "a"), (2, "b")))
    one.write(20, u1=rows((1, "a"), diff=-1))
    one.write(30, u2=rows((3, "c")))
    for as_of in (5, 9, 10, 19, 20, 30):
        with one.collections.snapshot_reader(u1, as_of) as pieces:
            read = pieces.read_all()
        found = zip(*(read[name].to_pylist() for name in ("c0", "c1", "mz_diff")), strict=True)
        assert sorted(found) == one.contents("u1", as_of)
    one.close()


def test_history_is_released_but_never_the_contents_of_an_idle_table(stores) -> None:
    one = Process(*stores)
    one.collections.own_holds()
    one.write(10, u1=rows((1, "a")))
    one.write(50, u2=rows((2, "b")))
    assert one.contents("u1", 50) == [(1, "a", 1)]
    one.collections.release_history(45)
    assert one.contents("u1", 50) == [(1, "a", 1)]
    one.close()


def test_what_another_process_has_applied_and_tidied_away_is_read(stores) -> None:
    one, two = Process(*stores), Process(*stores)
    one.write(10, u1=rows((1, "a")))
    assert two.contents("u1", 10) == [(1, "a", 1)]
    for ts in (20, 30):
        one.write(ts, u1=rows((ts, "x")))
        assert one.contents("u1", ts)
    one.collections.table(GlobalId("u1")).catch_up()
    one.write(40, u2=rows((2, "b")))
    two.wal.follow()
    assert stores[3]["u1"] not in two.wal.state.live
    assert two.contents("u1", 40) == [(1, "a", 1), (20, "x", 1), (30, "x", 1)]
    one.close()
    two.close()


@pytest.mark.parametrize("again", ["no", "lapsed"])
def test_what_is_tidied_away_after_an_earlier_time_was_read_is_read(stores, again: str) -> None:
    """Who reads an earlier time may know of later writes from the log alone, and these may be gone from it at the next look."""
    one = Process(*stores)
    one.write(10, u1=rows((1, "a")))
    one.contents("u1", 10)
    one.collections.table(GlobalId("u1")).catch_up()
    for ts in (20, 30):
        one.write(ts, u1=rows((ts, "x")))
    two = Process(*stores)
    assert two.contents("u1", 10) == [(1, "a", 1)]
    if again == "lapsed":
        two.collections.table(GlobalId("u1")).reopen()
        assert two.contents("u1", 10) == [(1, "a", 1)]
    one.contents("u1", 30)
    one.collections.table(GlobalId("u1")).catch_up()
    for ts in (40, 50):
        one.write(ts, u1=rows((ts, "y")))
    two.wal.follow()
    assert [entry.ts for entry in two.wal.state.live[stores[3]["u1"]]] == [40, 50]
    assert two.contents("u1", 40) == [(1, "a", 1), (20, "x", 1), (30, "x", 1), (40, "y", 1)]
    assert two.collections.updates(GlobalId("u1"), 11, 51)["c0"].to_pylist() == [20, 30, 40, 50]
    one.close()
    two.close()


def test_applied_entries_are_tidied_so_the_log_stays_small(stores) -> None:
    one = Process(*stores)
    most = BEHIND_WRITES + 2
    for ts in range(10, 10 + 2 * most):
        one.write(ts, u1=rows((ts, "x")))
        one.contents("u1", ts)
        assert sum(map(len, one.wal.state.live.values())) <= most
    one.collections.table(GlobalId("u1")).catch_up()
    one.write(500, u2=rows((1, "y")))
    fresh = Process(*stores)
    assert sum(map(len, fresh.wal.state.live.values())) == 1
    assert len(fresh.contents("u1", 500)) == 2 * most
    one.close()
    fresh.close()


def test_waiting_for_a_time_ends_with_the_commit_of_another_thread(stores) -> None:
    one = Process(*stores)
    one.write(10, u1=rows((1, "a")))
    writer = threading.Timer(0.05, lambda: one.write(20, u2=rows((2, "b"))))
    writer.start()
    assert one.collections.wait_for_upper(GlobalId("u1"), 20, timeout=60) == 21
    writer.join()
    with pytest.raises(
        NotReadable, match=r"u1 is not readable at 99: .* its write frontier is \[21\]"
    ):
        one.collections.wait_for_upper(GlobalId("u1"), 99, timeout=0.05)
    one.close()


def test_a_follower_hears_of_what_upkeep_has_met_first(stores) -> None:
    """A change of this process to the log's shard takes another's commit in without following it: no wait may sleep over that."""
    a, b = Process(*stores), Process(*stores)
    for n in range(3):
        b.write(10 + n, u1=rows((n, "x")))
        seen = a.wal.state.upper
        assert seen <= 10 + n
        # loses the race to b's commit, and is then based on it
        a.persist.open_reader(stores[2], purpose="upkeep").expire()
        assert a.wal.state.upper == seen
        assert a.wal.next_move(seen, 0.01).upper == 11 + n
    a.close()
    b.close()


def test_a_follower_hears_of_what_could_not_be_read_at_first(stores) -> None:
    a, b = Process(*stores), Process(*stores)
    b.write(10, u1=rows((1, "a")))
    seen = a.wal.state.upper
    with pytest.MonkeyPatch.context() as broken:
        broken.setattr(ReadHandle, "updates", _away)
        with pytest.raises(Indeterminate):
            a.wal.next_move(seen, 0.01)
    assert a.wal.next_move(seen, 0.01).upper == 11
    a.close()
    b.close()


def _away(*_: object, **__: object) -> None:
    raise Indeterminate("the objects cannot be read")


def _upper(process: Process, name: str) -> int | None:
    """That of the table's shard itself, as a stranger finds it."""
    other = PersistClient(process.persist.blob, process.persist.consensus, background=False)
    with other:
        return other.open_reader(process.shards[name]).upper


def test_a_read_writes_nothing_and_the_shard_follows_with_one_append(stores) -> None:
    one = Process(*stores)
    for ts in (10, 20, 30):
        one.write(ts, u1=rows((ts, "x")))
    assert len(one.contents("u1", 30)) == 3
    assert _upper(one, "u1") == 0
    assert one.collections.updates(GlobalId("u1"), 15, 25).column("mz_time").to_pylist() == [20]
    two = Process(*stores, delay=0.01)
    assert _upper(one, "u1") == 0
    two.write(40, u1=rows((40, "x")))
    assert len(two.contents("u1", 40)) == 4
    end = time.monotonic() + 60
    while _upper(one, "u1") != 41 and time.monotonic() < end:
        time.sleep(0.01)
    assert _upper(one, "u1") == 41
    assert len(one.contents("u1", 40)) == 4
    two.close()
    one.close()


def test_what_waits_for_a_tables_shard_is_bounded_in_bytes(stores) -> None:
    one = Process(*stores)
    text = "x" * (one.persist.settings.inline_bytes // 2)
    for ts in range(10, 200):
        one.write(ts, u1=rows((ts, text)))
        one.contents("u1", ts)
        assert one.collections.table(GlobalId("u1"))._writer.behind[1] <= BEHIND_BYTES
    assert _upper(one, "u1") != 0
    one.close()


def test_holds_keep_history_and_its_release_lets_it_go(stores) -> None:
    one = Process(*stores)
    one.collections.own_holds()
    for ts in (10, 20, 30):
        one.write(ts, u1=rows((ts, "x")))
    assert len(one.contents("u1", 30)) == 3
    one.collections.table(GlobalId("u1")).catch_up()
    hold = one.collections.hold(GlobalId("u1"), 15)
    one.collections.release_history(28)
    assert one.collections.since(GlobalId("u1")) == 15
    assert len(one.contents("u1", 20)) == 2
    hold.release()
    one.collections.release_history(28)
    assert one.collections.since(GlobalId("u1")) == 28
    one.close()


def test_state_of_the_log_is_a_pure_function_of_its_entries() -> None:
    write = WalEntry("s1", 5, WRITE, b"x")
    state = advance(WalState(), [(WalEntry("s1", 0, REGISTER), 1), (write, 1)], 6)
    assert state.live == {"s1": (write,)}
    assert state.written_after("s1", 4)
    assert not state.written_after("s1", 5)
    after = advance(state, [(write, -1)], 7)
    assert after.live == {}
    assert after.registered == {"s1"}
    assert state.live == {"s1": (write,)}


class Log(RuleBasedStateMachine):
    """Several processes write, read, crash and come back; a dict of counters is the model."""

    @initialize()
    def start(self) -> None:
        self.blob, self.consensus = open_blob("mem:"), open_consensus("mem:")
        new = PersistClient(self.blob, self.consensus, background=False).new_shard_id
        self.log, self.shards = new(), {"u1": new(), "u2": new()}
        self.processes = [self.fresh(), self.fresh()]
        self.ts = 1
        self.history: list[tuple[int, dict[str, dict[tuple[int, str], int]]]] = []
        self.model: dict[str, dict[tuple[int, str], int]] = {"u1": {}, "u2": {}}
        self.write(0, 0, {"u1"}, 1, 1)

    def fresh(self) -> Process:
        return Process(self.blob, self.consensus, self.log, self.shards)

    @rule(
        who=st.integers(0, 1),
        value=st.integers(0, 3),
        tables=st.sets(st.sampled_from(["u1", "u2"]), min_size=1),
        gap=st.integers(1, 3),
        diff=st.sampled_from([1, 1, -1]),
    )
    def write(self, who: int, value: int, tables: set[str], gap: int, diff: int) -> None:
        self.ts += gap
        self.processes[who].write(
            self.ts, **{name: rows((value, "v"), diff=diff) for name in tables}
        )
        for name in tables:
            held = self.model[name]
            held[value, "v"] = held.get((value, "v"), 0) + diff
        self.history.append((self.ts, copy.deepcopy(self.model)))

    @rule(who=st.integers(0, 1), name=st.sampled_from(["u1", "u2"]))
    def read(self, who: int, name: str) -> None:
        expected = sorted((*row, n) for row, n in self.model[name].items() if n)
        assert self.processes[who].contents(name, self.ts) == expected

    @rule(who=st.integers(0, 1), name=st.sampled_from(["u1", "u2"]), back=st.integers(0, 5))
    def read_back(self, who: int, name: str, back: int) -> None:
        process = self.processes[who]
        ts, model = self.history[max(0, len(self.history) - 1 - back)]
        since = process.collections.since(GlobalId(name))
        if since is not None and since <= ts:
            expected = sorted((*row, n) for row, n in model[name].items() if n)
            assert process.contents(name, ts) == expected

    @rule(who=st.integers(0, 1), name=st.sampled_from(["u1", "u2"]))
    def follow(self, who: int, name: str) -> None:
        self.processes[who].collections.table(GlobalId(name)).catch_up()

    @rule(who=st.integers(0, 1))
    def crash(self, who: int) -> None:
        self.processes[who].tables.close()
        self.processes[who] = self.fresh()

    @rule(who=st.integers(0, 1))
    def compact(self, who: int) -> None:
        for name in self.shards:
            self.processes[who].collections.since(GlobalId(name))
        self.processes[who].collections.release_history(self.ts)

    @invariant()
    def logs_agree(self) -> None:
        if hasattr(self, "processes"):
            a, b = (p.wal.follow() for p in self.processes)
            assert (a.upper, a.live, a.registered) == (b.upper, b.live, b.registered)


TestLog = Log.TestCase
TestLog.settings = settings(max_examples=15, stateful_step_count=15, deadline=None)


def _lapse(process: Process) -> None:
    """What a suspended machine wakes up to: its readers were expired by another process."""
    for opened in process.persist._shards.all():
        for reader in opened.readers:
            other = PersistClient(process.persist.blob, process.persist.consensus, background=False)
            machine = other._open(reader.shard_id, None, None, None).shard
            machine.apply(ExpireReader(reader.reader_id), machine.context.deadline(5))
            other.close()


def test_a_commit_stands_though_the_logs_lease_ran_out(stores) -> None:
    one, two = Process(*stores), Process(*stores)
    one.write(10, u1=rows((1, "a")))
    expected = one.wal.follow()
    batch = one.collections.table(GlobalId("u1")).batch(rows((2, "b")))
    _lapse(one)
    state = one.wal.commit(20, {one.shards["u1"]: batch}, expected=expected)
    assert state.upper == 21
    assert two.contents("u1", 20) == one.contents("u1", 20) == [(1, "a", 1), (2, "b", 1)]
    for ts in range(30, 50):
        one.write(ts, u1=rows((3, "c")))
    assert one.wal._reader.since >= 30  # a fresh reader lets history go again
    one.close()
    two.close()


def test_every_read_recovers_from_a_lapsed_lease(stores) -> None:
    one = Process(*stores)
    one.collections.own_holds()
    one.write(10, u1=rows((1, "a")))
    u1 = GlobalId("u1")
    assert one.contents("u1", 10) == [(1, "a", 1)]
    one.collections.table(u1).catch_up()
    _lapse(one)
    assert sum(ref.rows for ref in one.collections.parts(u1, 10)) == 1
    _lapse(one)
    assert sum(ref.rows for ref in one.collections.parts_between(u1, 10, 11)) == 1
    _lapse(one)
    assert one.collections.updates(u1, 10, 11).num_rows == 1
    _lapse(one)
    one.collections.release_history(10)
    one.collections.release_history(10)
    assert one.collections.since(u1) == 10
    one.close()


def test_a_hold_taken_while_history_is_released_is_kept(stores) -> None:
    one = Process(*stores)
    u1 = GlobalId("u1")
    for ts in (10, 20, 30):
        one.write(ts, u1=rows((ts, "x")))
    assert len(one.contents("u1", 30)) == 3
    table = one.collections.table(u1)
    table.catch_up()
    downgrade = table.reader.downgrade_since
    taken = []

    def meanwhile(since: int) -> None:
        taken.append(one.collections.hold(u1, 15))
        downgrade(since)

    table.reader.downgrade_since = meanwhile  # type: ignore[method-assign]
    one.collections.release_history(28)
    since = one.collections.since(u1)
    assert since is not None
    assert since <= taken[0].since
    assert len(one.contents("u1", taken[0].since)) == 2
    one.close()


def test_a_hold_says_what_was_given_up_while_its_lease_had_lapsed(stores) -> None:
    """It held nothing meanwhile: who hydrates from it must not take what it held before for readable."""
    one, two = Process(*stores), Process(*stores)
    u1 = GlobalId("u1")
    for ts in (10, 20, 30):
        one.write(ts, u1=rows((ts, "x")))
    one.collections.table(u1).catch_up()
    hold = one.collections.hold(u1, 15)
    two.collections.own_holds()
    assert len(two.contents("u1", 30)) == 3
    _lapse(one)
    two.collections.release_history(28)
    assert two.collections.since(u1) == 28
    assert len(one.contents("u1", 30)) == 3
    assert hold.since == 28
    one.close()
    two.close()
