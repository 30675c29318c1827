"""The log of exports: one write for many shards, read by other processes at once, and in each shard once whoever writes and dies."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mzsql.location import Determinate, Indeterminate, consensus_around
from mzsql.location.mem import MemBlob, MemConsensus
from mzsql.persist import Batch, PersistClient, ReadHandle, ReadTimeout, Settings, WriteHandle
from mzsql.storage import ExportLog, log_shard_of

T = TypeVar("T")

NEVER = 1e9
SCHEMA = pa.schema([pa.field("c0", pa.int64())])
SHARDS = [f"s00000000-0000-4000-8000-00000000000{n}" for n in range(3)]
LOG = log_shard_of("s00000000-0000-4000-8000-00000000000a")


def definite(shard: str, lower: int, upper: int) -> pa.Table:
    """The updates that every process makes of a shard: none at every third time, a row that comes or goes at the others."""
    seed = SHARDS.index(shard)
    rows = [(t % 5, t, 1 if t % 2 else -1) for t in range(lower, upper) if (t + seed) % 3]
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    full = pa.schema([*SCHEMA, ("mz_time", pa.int64()), ("mz_diff", pa.int64())])
    return pa.table(dict(zip(full.names, columns, strict=True)), schema=full)


def counted(rows: pa.Table) -> Counter[int]:
    found: Counter[int] = Counter()
    for row in rows.to_pylist():
        found[row["c0"]] += row["mz_diff"]
    return Counter({row: count for row, count in found.items() if count})


class Store:
    """A place for processes, which counts and may fail what they ask of Consensus."""

    def __init__(self) -> None:
        self.blob, self.consensus = MemBlob(), MemConsensus()
        self.counts: Counter[tuple[str, str]] = Counter()
        self.lose: set[str] = set()
        self.away = False

    def process(self, name: str, **given: Any) -> Process:
        def around(operation: str, act: Callable[[], T]) -> T:
            self.counts[name, operation] += 1
            if self.away:
                raise Determinate("the store is away")
            if operation == "compare_and_set" and name in self.lose:
                self.lose.discard(name)
                act()
                raise Indeterminate("the answer was lost")
            return act()

        store = consensus_around(self.consensus, around)
        return Process(
            PersistClient(
                self.blob, store, settings=Settings(timeout=2.0, maintenance="elsewhere")
            ),
            **given,
        )


class Process:
    """Maintains every shard, as dataflows do, and reads it, as sessions do."""

    def __init__(self, client: PersistClient, **given: Any) -> None:
        self.client = client
        self.log = ExportLog(client, LOG, **{"delay": NEVER, "quiet": NEVER, **given})
        self._writers: dict[str, WriteHandle] = {}
        self._readers: dict[str, ReadHandle] = {}

    def writer(self, shard: str) -> WriteHandle:
        if shard not in self._writers:
            self.log.begin()
            self._writers[shard] = self.client.open_writer(shard, SCHEMA)
            self.log.attach(self._writers[shard])
        return self._writers[shard]

    def reader(self, shard: str) -> ReadHandle:
        if shard not in self._readers:
            self._readers[shard] = self.client.open_reader(shard, SCHEMA)
            self.log.attach(self._readers[shard])
        return self._readers[shard]

    def make(self, shard: str, times: int) -> int:
        """Go on by so many times; the upper then."""
        writer = self.writer(shard)
        lower = writer.known_upper
        assert lower is not None
        rows = definite(shard, lower, lower + times)
        batch = Batch(shard, lower, lower + times)
        if rows.num_rows:
            batch = writer.batch(rows, lower=lower, upper=lower + times)
        writer.append_quietly(batch)
        self.log.add(batch)
        return lower + times

    def write(self, shard: str, times: int) -> None:
        """The same, into the shard itself, as what is large goes."""
        writer = self.writer(shard)
        lower = writer.catch_up()
        assert lower is not None
        writer.append(definite(shard, lower, lower + times), lower=lower, upper=lower + times)
        at = writer.upper
        assert at is not None
        self.log.add(Batch(shard, at, at))

    def check(self, shard: str, upper: int) -> None:
        """What is complete below ``upper`` can be read, now, and is right."""
        reader = self.reader(shard)
        self.log.wait(reader, upper - 1, timeout=0)
        reached = reader.upper
        assert reached is not None
        for at in {upper, reached}:
            assert counted(reader.snapshot_arrow(at - 1)) == counted(definite(shard, 0, at))
        assert reader.updates(0, reached).num_rows == definite(shard, 0, reached).num_rows

    def close(self) -> None:
        self.log.close()
        self.client.close()


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def pair(store: Store) -> Iterator[tuple[Process, Process]]:
    processes = store.process("here"), store.process("there")
    yield processes
    for one in processes:
        one.close()


def test_one_write_commits_all_and_others_read_it_without_any(store: Store, pair: Any) -> None:
    here, there = pair
    for _ in range(2):  # what it costs to open the log, and to let go of its history now and then
        for shard in SHARDS:
            here.make(shard, 2)
            there.reader(shard)
        here.log.flush()
        there.log.follow()
        here.log.follow()
    for _ in range(3):
        uppers = [here.make(shard, 4) for shard in SHARDS]
        store.counts.clear()
        here.log.flush()
        assert store.counts["here", "compare_and_set"] == 1
        for shard, upper in zip(SHARDS, uppers, strict=True):
            there.check(shard, upper)
        assert store.counts["there", "compare_and_set"] == 0
        assert store.counts["there", "scan"] <= 2 * len(SHARDS)
    assert [here.writer(shard).upper for shard in SHARDS] == [0, 0, 0]


def test_what_others_have_written_is_told_from_what_is_written_here(pair: Any) -> None:
    here, there = pair
    shard, other = SHARDS[0], SHARDS[1]
    here.make(shard, 3)
    here.log.flush()
    # What was there when the log was opened may have been written by anybody.
    assert there.writer(shard).known_upper == 3
    assert (here.log.others(shard), there.log.others(shard)) == (0, 0)
    there.make(shard, 2)
    here.make(shard, 4)
    there.log.flush()
    here.log.flush()  # finds that two of its times are there
    here.log.follow()
    there.log.follow()
    assert (here.log.others(shard), there.log.others(shard)) == (5, 7)
    # What goes into the shard itself is told, too; of a shard that nobody has open here nothing is kept.
    there.write(shard, 1)
    there.make(other, 1)
    there.log.flush()
    here.log.follow()
    assert (here.log.others(shard), here.log.others(other)) == (8, 0)
    here.log.detach(here.writer(shard))
    assert here.log.others(shard) == 0


def test_a_process_that_opens_later_knows_what_the_log_has(store: Store, pair: Any) -> None:
    here, there = pair
    uppers = [here.make(shard, 5) for shard in SHARDS]
    here.log.flush()
    for shard, upper in zip(SHARDS, uppers, strict=True):
        assert there.writer(shard).known_upper == upper
        there.check(shard, upper)
        assert there.writer(shard).catch_up() == upper
    with PersistClient(store.blob, store.consensus) as plain:
        for shard, upper in zip(SHARDS, uppers, strict=True):
            rows = plain.open_reader(shard).snapshot_arrow(upper - 1)
            assert counted(rows) == counted(definite(shard, 0, upper))


def test_how_far_very_many_shards_go_is_found_with_the_log_fetched_once(
    store: Store, pair: Any
) -> None:
    here, there = pair
    for _ in range(2):
        for shard in SHARDS:
            here.make(shard, 3)
        here.log.flush()
    uppers = [here.make(shard, n) for n, shard in enumerate(SHARDS, start=1)]
    here.log.flush()
    assert [there.log.reach(shard, 0) for shard in SHARDS] == uppers
    reach = there.log.reaching()
    store.counts.clear()
    assert [reach(shard, 0) for shard in SHARDS] == uppers
    assert [reach(shard, 3) for shard in SHARDS] == uppers
    assert [reach(shard, None) for shard in SHARDS] == [None] * len(SHARDS)
    assert reach("of nobody", 5) == 5
    assert store.counts.total() == 0
    # What came later is not missed where the shard itself has it.
    later = here.make(SHARDS[0], 2)
    here.log.flush()
    assert reach(SHARDS[0], later) == later


def test_who_loses_drops_what_the_winner_has(pair: Any) -> None:
    here, there = pair
    shard = SHARDS[0]
    for one in pair:
        one.writer(shard)
    here.make(shard, 3)
    here.make(shard, 3)
    there.make(shard, 5)
    there.log.flush()
    here.log.flush()
    assert [(s.lower, s.upper) for row in here.log.state.live for s in row.stretches] == [
        (0, 5),
        (3, 6),
    ]
    before = here.log.state.upper
    there.make(shard, 1)
    there.log.follow()
    there.log.flush()  # the other has that, too
    for one in pair:
        one.log.follow()
        one.check(shard, 6)
    assert here.log.state.upper == before + 1
    again = Batch(shard, 3, 6, here.log.state.live[1].stretches[0].parts)
    here.log.add(again)
    there.make(shard, 1)
    there.log.flush()
    upper = there.log.state.upper
    here.log.flush()
    assert here.log.state.upper == upper  # nothing was left to say


def test_what_shards_have_leaves_the_log(pair: Any) -> None:
    here, there = pair
    for shard in SHARDS:
        here.make(shard, 4)
    here.log.flush()
    here.make(SHARDS[0], 4)
    here.log.flush()
    for shard in SHARDS[1:]:
        here.writer(shard).catch_up()
    here.make(SHARDS[1], 4)
    here.log.flush()
    assert len(here.log.state.live) == 3  # the first row has something that one shard lacks
    for shard in SHARDS:
        here.writer(shard).catch_up()
    upper = here.make(SHARDS[2], 4)
    here.log.flush()
    assert len(here.log.state.live) == 1
    assert there.log.follow().live == here.log.state.live
    there.check(SHARDS[2], upper)


def test_uppers_of_shards_without_updates_do_not_pile_up(pair: Any) -> None:
    here, there = pair
    shard = SHARDS[0]
    first = here.make(shard, 4)
    here.log.flush()
    for upper in range(first, first + 50):
        quiet = Batch(shard, upper, upper + 1)
        here.writer(shard).append_quietly(quiet)
        here.log.add(quiet)
        here.log.flush()
    assert len(here.log.state.live) == 2
    reader = there.reader(shard)
    assert there.log.wait(reader, first + 49, timeout=0) == first + 50
    assert counted(reader.snapshot_arrow(first + 49)) == counted(definite(shard, 0, first))


def test_of_dropped_exports_nothing_stays(pair: Any) -> None:
    here, there = pair
    for shard in SHARDS[:2]:
        here.make(shard, 4)
    here.log.flush()
    here.log.detach(here.writer(SHARDS[0]))
    here.client.finalize(SHARDS[0])
    # one that runs nowhere is brought forward by whoever writes the log
    there.make(SHARDS[2], 4)
    there.log.flush()
    there.make(SHARDS[2], 4)
    there.log.flush()
    assert {s.shard_id for row in there.log.state.live for s in row.stretches} == {SHARDS[2]}
    assert there.client.open_writer(SHARDS[1], SCHEMA).upper == 4


def test_who_waits_for_nothing_holds_no_history_of_the_log_back(pair: Any) -> None:
    here, there = pair
    here.make(SHARDS[0], 1)
    here.log.flush()
    there.check(SHARDS[0], 1)
    for _ in range(40):
        here.make(SHARDS[0], 1)
        here.log.flush()
    there.log.keep_up()
    here.log.keep_up()
    report = here.client.report(LOG)
    assert report.upper == 41
    assert report.since is not None
    assert report.since >= 41 - 17


def test_a_commit_that_fails_is_tried_again(store: Store) -> None:
    here, there = store.process("here"), store.process("there")
    try:
        upper = here.make(SHARDS[0], 4)
        store.away = True
        here.log.settle()
        deadline = threading.Event()
        while not any(s.restarts for s in here.client.supervisor.statuses()):
            deadline.wait(0.01)
        store.away = False
        assert there.log.wait(there.reader(SHARDS[0]), upper - 1, timeout=60) == upper
    finally:
        store.away = False
        here.close()
        there.close()


def test_a_lost_answer_does_no_harm(store: Store, pair: Any) -> None:
    here, there = pair
    upper = here.make(SHARDS[0], 4)
    here.log.begin()
    store.lose.add("here")
    here.log.flush()  # asks again, and finds that it is there
    there.check(SHARDS[0], upper)
    assert len(here.log.follow().live) == 1


def test_who_waits_is_woken_by_the_log(pair: Any) -> None:
    here, there = pair
    here.make(SHARDS[0], 1)
    here.log.flush()
    reader = there.reader(SHARDS[0])
    with pytest.raises(ReadTimeout):
        there.log.wait(reader, 5, timeout=0)
    reached: list[Any] = []
    waits = threading.Thread(target=lambda: reached.append(there.log.wait(reader, 5, timeout=60)))
    waits.start()
    here.make(SHARDS[0], 5)
    here.log.flush()
    waits.join(60)
    assert reached == [6]


def test_what_was_added_is_committed_by_itself(store: Store) -> None:
    here, there = store.process("here", delay=NEVER, quiet=0.0), store.process("there")
    try:
        upper = here.make(SHARDS[0], 4)
        here.log.settle()
        assert there.log.wait(there.reader(SHARDS[0]), upper - 1, timeout=60) == upper
        quiet = Batch(SHARDS[0], upper, upper + 9)
        here.writer(SHARDS[0]).append_quietly(quiet)
        here.log.add(quiet)
        assert there.log.wait(there.reader(SHARDS[0]), upper + 8, timeout=60) == upper + 9
    finally:
        here.close()
        there.close()


def test_an_upper_that_others_wait_for_is_committed_as_updates_are(store: Store) -> None:
    here, there = store.process("here"), store.process("there")
    try:
        quiet = Batch(SHARDS[0], 0, 9)
        here.writer(SHARDS[0]).append_quietly(quiet)
        here.log.hasten()  # nothing is queued
        here.log.add(quiet)
        here.log.settle()
        assert here.log._due() == pytest.approx(NEVER, abs=60)
        here.log.hasten()
        assert here.log._due() == pytest.approx(NEVER, abs=60)  # the others of its tick go along
        here.log.settle()
        assert there.log.wait(there.reader(SHARDS[0]), 8, timeout=60) == 9
    finally:
        here.close()
        there.close()


_NUMBER = st.integers(0, 2)
_STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["make", "make", "make", "commit", "commit", "catch up", "write", "die", "read"]
        ),
        st.integers(0, 1),
        _NUMBER,
        st.integers(1, 6),
    ),
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(_STEPS)
def test_whoever_writes_and_dies_each_update_counts_once(steps: list[Any]) -> None:
    """Two processes make the same updates with cuts of their own, commit, bring shards forward and die; a third one reads."""
    store = Store()
    made: list[Process] = []

    def process() -> Process:
        made.append(store.process(str(len(made))))
        return made[-1]

    try:
        makers, third = [process(), process()], process()
        durable = dict.fromkeys(SHARDS, 0)
        for kind, number, place, times in steps:
            maker, shard = makers[number], SHARDS[place]
            if kind == "make":
                maker.make(shard, times)
            elif kind == "write":
                maker.write(shard, times)
                durable[shard] = max(durable[shard], maker.writer(shard).upper or 0)
            elif kind == "commit":
                maker.log.flush()
                for one in SHARDS:
                    durable[one] = max(durable[one], maker.writer(one).known_upper or 0)
            elif kind == "catch up":
                durable[shard] = max(durable[shard], maker.writer(shard).catch_up() or 0)
            elif kind == "die":
                makers[number] = process()
            elif durable[shard]:
                third.check(shard, durable[shard])
        for shard in SHARDS:
            if durable[shard]:
                third.check(shard, durable[shard])
                for maker in makers:
                    assert (maker.writer(shard).catch_up() or 0) >= 0
                last = max(maker.writer(shard).fetch_upper() or 0 for maker in makers)
                assert last >= durable[shard]
                with PersistClient(store.blob, store.consensus) as plain:
                    rows = plain.open_reader(shard).snapshot_arrow(last - 1)
                    assert counted(rows) == counted(definite(shard, 0, last))
        makers[0].log.flush()
        for shard in SHARDS:
            makers[0].writer(shard).catch_up()
        makers[0].make(SHARDS[0], 1)
        makers[0].log.flush()
        named = {s.shard_id for row in makers[0].log.state.live for s in row.stretches}
        assert named <= {SHARDS[0]}
    finally:
        for one in made:
            one.close()
