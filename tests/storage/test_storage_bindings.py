"""Timestamp bindings against the seed's words, and source writers that crash: each message once, at the same time by all."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest
from bindings_kit import SCHEMA, Crash, Instance, MemorySource, Site
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from mzsql.location import LocationError
from mzsql.persist import InvalidBounds, SchemaMismatch, SinceViolation
from mzsql.storage import (
    Binding,
    BindingCompacted,
    BindingMinter,
    BindingReader,
    SourceWriter,
)


def messages(*source_ts: tuple[str, int]) -> pa.Table:
    return MemorySource().table([(p, o, f"{p}/{o}") for p, o in source_ts])


def times(table: pa.Table) -> list[tuple[str, int, int]]:
    return [(r["partition"], r["offset"], r["mz_time"]) for r in table.to_pylist()]


class Ticks:
    """A time that is told."""

    def __init__(self, now: int) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


def minter_at(site: Site, now: int) -> tuple[BindingMinter, Ticks]:
    ticks = Ticks(now)
    return BindingMinter(site.persist, site.bindings, now=ticks), ticks


def test_a_binding_covers_what_no_lower_one_does() -> None:
    site = Site()
    minter, ticks = minter_at(site, 100)
    assert minter.mint({"a": 4, "b": 0}) == 101
    ticks.now = 200
    assert minter.mint({"a": 9, "b": 0}) == 201
    reader = BindingReader(site.persist, site.bindings)
    bound = reader.bind(messages(("a", 9), ("a", 0), ("b", 0), ("a", 4), ("a", 5), ("a", 10)))
    assert times(bound.updates) == [
        ("a", 9, 200),
        ("a", 0, 100),
        ("b", 0, 100),
        ("a", 4, 100),
        ("a", 5, 200),
    ]
    assert bound.unbound.to_pylist() == messages(("a", 10)).to_pylist()
    assert bound.upper == reader.upper == 201
    assert reader.bind(messages(("c", 0))).unbound.num_rows == 1
    later = reader.bind(messages(("a", 4), ("a", 5), ("a", 99)), lower=101)
    assert times(later.updates) == [("a", 5, 200)]
    assert later.unbound.num_rows == 1


def test_time_passes_centrally_without_anything_new_but_never_back() -> None:
    site = Site()
    minter, ticks = minter_at(site, 100)
    minter.mint({"a": 1})
    ticks.now = 150
    assert minter.mint({"a": 1}) == 151
    ticks.now = 120
    assert minter.mint({"a": 1}) == 151, "nothing new, and the clock is behind"
    assert minter.mint({"a": 2}) == 152, "something new goes to the first time there is"
    assert minter.mint({}) == 152
    site.audit()
    assert site.model == {"a": [(1, 100), (2, 151)]}


def test_a_binding_is_asked_for_once_and_stays() -> None:
    site = Site()
    one, _ = minter_at(site, 100)
    two, _ = minter_at(site, 50)
    assert one.get_binding("a", 7) == Binding("a", 7, 100)
    assert two.get_binding("a", 3) == Binding("a", 7, 100)
    assert two.get_binding("a", 8) == Binding("a", 8, 101)
    assert one.get_binding("a", 8) == one.get_binding("a", 8) == Binding("a", 8, 101)
    upper = site.audit()
    assert one.get_bindings({"a": 1, "b": 2}) == {
        "a": Binding("a", 7, 100),
        "b": Binding("b", 2, upper),
    }
    assert one.cover({"a": 8, "b": 0}) == site.audit()


def test_minters_on_threads_agree() -> None:
    site = Site()
    found: list[list[Binding]] = [[] for _ in range(4)]

    def ask(number: int) -> None:
        minter, ticks = minter_at(site, 100 + number)
        for offset in range(number, 60, 3):
            ticks.now += 1
            found[number].append(minter.get_binding("p", offset))
            minter.mint({f"q{number}": offset})

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    site.audit()
    for number, bindings in enumerate(found):
        for offset, binding in zip(range(number, 60, 3), bindings, strict=True):
            assert binding.ts == site.time_of("p", offset)
            assert binding.offset >= offset


@settings(max_examples=30, deadline=None)
@given(
    mints=st.lists(
        st.dictionaries(st.sampled_from("abc"), st.integers(0, 30), min_size=1), max_size=8
    ),
    asked=st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 35)), max_size=12),
    lower=st.integers(0, 12),
    compact=st.integers(0, 12),
)
def test_bind_is_the_seeds_rule(
    mints: list[dict[str, int]], asked: list[tuple[str, int]], lower: int, compact: int
) -> None:
    site = Site()
    minter, ticks = minter_at(site, 0)
    for now, high in enumerate(mints):
        ticks.now = now
        minter.mint(high)
    upper = site.audit()
    reader = BindingReader(site.persist, site.bindings, consumer="it")
    reader.compact(min(compact, upper))
    for one in (reader, BindingReader(site.persist, site.bindings)):
        if one.state.since > max(lower - 1, 0):
            with pytest.raises(SinceViolation):
                one.bind(messages(*asked), lower=lower)
            continue
        bound = one.bind(messages(*asked), lower=lower)
        expected = [(p, o, site.time_of(p, o)) for p, o in asked]
        assert times(bound.updates) == [e for e in expected if e[2] is not None and e[2] >= lower]
        assert [(r["partition"], r["offset"]) for r in bound.unbound.to_pylist()] == [
            e[:2] for e in expected if e[2] is None
        ]
        assert bound.upper == upper


def test_compaction_keeps_one_row_a_partition_and_what_a_consumer_needs() -> None:
    site = Site()
    reader = BindingReader(site.persist, site.bindings, consumer="data")
    minter, ticks = minter_at(site, 0)
    for n in range(1, 101):
        ticks.now = n * 10
        minter.mint({"a": n, "b": n // 50})
        site.audit()
    reader.follow()
    reader.compact(801)
    late = BindingReader(site.persist, site.bindings, consumer="late")
    assert late.state.since <= 800
    minter.mint({"a": 101})
    site.audit()
    reader.follow()
    site.persist.maintain(site.bindings, full=True)
    state = site.persist.inspect(site.bindings)
    assert state.since <= 800
    # A restarted instance of the consumer goes on at 801; nobody finds times that were given up.
    again = BindingReader(site.persist, site.bindings, consumer="data")
    assert times(again.bind(messages(("a", 80), ("a", 81), ("b", 2)), lower=801).updates) == [
        ("a", 81, 810),
        ("b", 2, 1000),
    ]
    assert again.state.bound_at(800) == {"a": 80, "b": 1}
    with pytest.raises(InvalidBounds, match="complete only up to"):
        again.compact(10**9)
    minter.close()
    for one in (again, reader, late) * 2:  # a lease follows the slowest consumer
        one.compact(site.audit())
    site.persist.maintain(site.bindings, full=True)
    state = site.persist.inspect(site.bindings)
    assert sum(batch.rows for batch in state.trace) <= 4
    fresh, _ = minter_at(site, 2000)
    with pytest.raises(BindingCompacted, match="offset 5 of partition 'a' was bound at or before"):
        fresh.get_binding("a", 5)
    assert fresh.cover({"a": 5}) is not None
    with pytest.raises(SinceViolation):
        late.bind(messages(("a", 5)))
    assert late.bind(messages(("a", 5), ("a", 200)), lower=site.audit()).unbound.num_rows == 1


def test_a_consumer_that_was_dropped_holds_nothing_back() -> None:
    site = Site()
    dropped = BindingReader(site.persist, site.bindings, consumer="dropped")
    reader = BindingReader(site.persist, site.bindings, consumer="data")
    minter, ticks = minter_at(site, 0)
    for n in range(1, 10):
        ticks.now = n
        minter.mint({"a": n})
    minter.close()
    for one in (dropped, reader) * 2:  # a lease follows the slowest consumer
        one.compact(9 if one is reader else 3)
    assert site.audit() == 10
    assert site.persist.inspect(site.bindings).since == 2
    dropped.release()
    dropped.release()
    dropped.close()
    reader.compact(9)
    assert site.persist.inspect(site.bindings).since == 8
    assert site.persist.inspect(site.bindings).critical.keys() == {"data"}


def test_without_consumers_nothing_is_given_up() -> None:
    site = Site()
    minter, ticks = minter_at(site, 0)
    for n in range(40):
        ticks.now = n
        minter.mint({"a": n})
    site.audit()
    assert site.persist.inspect(site.bindings).since == 0
    assert minter.get_binding("a", 0) == Binding("a", 0, 0)


def test_a_source_that_has_ended_ends_its_data() -> None:
    site = Site()
    site.source.produce("a", 5)
    instance = Instance(site, asks=True)
    upper = instance.writer.step()
    assert upper == site.audit()
    site.source.produce("a", 2)
    instance.minter.mint(site.source.high_watermarks())
    instance.minter.finish()
    instance.minter.finish()
    assert instance.writer.step() is None
    assert instance.writer.step() is None
    instance.writer.compact()
    reader = site.persist.open_reader(site.data)
    assert reader.snapshot_arrow(10**9).num_rows == 7
    assert instance.minter.mint({"a": 6}) is None
    for act in (instance.minter.mint, instance.minter.cover):
        with pytest.raises(InvalidBounds, match="the source has ended"):
            act({"a": 7})
    # Whoever comes later finds the end too.
    later = Instance(site, asks=False)
    assert later.writer.step() is None


def test_misuse_is_named() -> None:
    site = Site()
    minter, _ = minter_at(site, 1)
    for partition, offset in (("a", -1), ("a", 2**63), ("a", True), (7, 1), ("a", None)):
        with pytest.raises(InvalidBounds, match="not a source timestamp"):
            minter.mint({partition: offset})  # type: ignore[dict-item]
    assert site.audit() == 0
    minter.mint({"7": 1})
    reader = BindingReader(site.persist, site.bindings)
    numbered = pa.table(
        {"partition": pa.array([7], pa.int32()), "offset": pa.array([1], pa.int32())}
    )
    assert reader.bind(numbered).updates["mz_time"].to_pylist() == [1]
    null = pa.table({"partition": ["7"], "offset": pa.array([None], pa.int64())})
    for table, what in (
        (null, '"offset" of messages is NULL'),
        (pa.table({"partition": ["7"]}), 'one column "offset"'),
        (pa.table({"partition": ["7"], "offset": [1.5]}), "cannot be of type double"),
        (reader.bind(numbered).updates, 'have a column "mz_time"'),
    ):
        with pytest.raises(SchemaMismatch, match=what):
            reader.bind(table)
    site.source.produce("7", 2)
    writer = SourceWriter(
        site.persist,
        site.source,
        bindings=site.bindings,
        shard_id=site.data,
        schema=SCHEMA.append(pa.field("more", pa.string())),
    )
    with pytest.raises(SchemaMismatch, match='lack the column "more"'):
        writer.step()
    assert site.persist.inspect(site.data).upper == 0


def test_a_consumer_that_comes_too_late_is_told() -> None:
    site = Site()
    site.source.produce("a", 3)
    early = Instance(site, asks=True)
    early.writer.step()
    site.clock.ms += 50
    site.source.produce("a", 3)
    early.writer.step()
    early.writer.compact()
    site.audit()
    early.minter.close()
    early.writer.compact()
    late = SourceWriter(
        site.persist,
        site.source,
        bindings=site.bindings,
        shard_id=site.persist.new_shard_id(),
        schema=SCHEMA,
    )
    with pytest.raises(SinceViolation):
        late.step()


def test_a_process_that_outslept_its_lease_goes_on() -> None:
    site = Site()
    sleeper, awake = Instance(site, asks=True), Instance(site, asks=True)
    for n in range(40):
        site.source.produce("a", 2)
        site.clock.ms += 60_000
        (awake if n % 20 else sleeper).writer.step()
        site.audit()
        awake.writer.compact()
    assert sleeper.minter.get_binding("a", 79).ts == site.time_of("a", 79)
    sleeper.writer.step()
    assert site.check_data() == 80


def test_instances_at_once_write_each_message_once() -> None:
    site = Site()
    one, two = Instance(site, asks=False), Instance(site, asks=False)
    for further in (False, True):
        site.source.produce("a", 5)
        one.minter.mint(site.source.high_watermarks())

        def meanwhile(further: bool = further) -> None:
            if further:
                site.source.produce("a", 2)
                site.clock.ms += 5
                two.minter.mint(site.source.high_watermarks())
            two.writer.step()

        site.source.meanwhile = meanwhile
        one.writer.step()
        site.audit()
        site.check_data()
    assert site.check_data() == 12


def test_an_instance_behind_the_others_gives_up_no_bindings_it_has_not_read() -> None:
    site = Site()
    behind, ahead = Instance(site, asks=False), Instance(site, asks=False)
    for _ in range(2):
        site.source.produce("a", 3)
        site.clock.ms += 30
        ahead.minter.mint(site.source.high_watermarks())
        site.audit()
        if behind.writer.bindings.upper == 0:
            behind.writer.step()
    upper = ahead.writer.step()
    ahead.writer.compact()
    known = behind.writer.bindings.upper
    assert known is not None
    assert upper is not None
    assert known < upper
    # The hold that they share is beyond what it knows now, its own lease must not be.
    behind.writer.compact()
    assert behind.writer.bindings.state.since < known
    assert behind.writer.step() == upper
    behind.writer.compact()
    assert behind.writer.bindings.state.since == upper - 1
    assert site.check_data() == 6


@pytest.mark.parametrize("act", ["mint", "step", "compact"])
def test_others_that_do_all_their_work_between_any_two_operations_of_an_instance(
    act: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Leases move on whenever bindings are read.
    monkeypatch.setattr("mzsql.storage.bindings._KEPT_MOVES", 1)
    spared = 0
    while _met_by_others(act, spared):
        spared += 1
    assert spared > 2


def _met_by_others(act: str, spared: int) -> bool:
    """Have another instance mint, write and compact before an operation of ``act``; whether there was such an operation."""
    site = Site()
    one, other = Instance(site, asks=False), Instance(site, asks=False)

    def work(instance: Instance) -> None:
        instance.minter.mint(site.source.high_watermarks())
        instance.writer.step()
        instance.writer.compact()
        site.audit()

    def meanwhile() -> None:
        site.source.produce("a", 2)
        site.clock.ms += 5
        work(other)

    site.source.produce("a", 3)
    for instance in (one, other):
        site.clock.ms += 5
        work(instance)
    site.source.produce("b", 1)
    site.clock.ms += 5
    other.minter.mint(site.source.high_watermarks())
    one.perils.meanwhile, one.perils.spared = meanwhile, spared
    if act == "mint":
        one.minter.mint(site.source.high_watermarks())
    elif act == "step":
        one.writer.step()
    else:
        one.writer.compact()
    met, one.perils.meanwhile = one.perils.meanwhile is None, None
    meanwhile()
    work(one)
    assert site.check_data() == sum(map(len, site.source.messages.values()))
    return met


class Ingestion(RuleBasedStateMachine):
    """Instances that mint and write, on stores that fail, crash at any operation, and come back."""

    @initialize(seed=st.integers(0, 2**32), asks=st.booleans(), inline=st.booleans())
    def start(self, seed: int, asks: bool, inline: bool) -> None:
        self.site = Site(seed, inline_bytes=65536 if inline else 0)
        self.asks = asks
        self.instances = [self.fresh(skew) for skew in (0, 30, -30)]

    def fresh(self, skew: int = 0) -> Instance:
        return Instance(self.site, asks=self.asks, skew=skew)

    def attempt(self, who: int, act: str) -> bool:
        """One act of an instance; it may fail, and the instance may be no more afterwards."""
        one = self.instances[who]
        try:
            if act == "mint":
                one.minter.mint(self.site.source.high_watermarks())
            elif act == "compact":
                one.writer.compact()
            else:
                one.writer.step()
        except Crash:
            self.instances[who] = self.fresh()
            return False
        except LocationError:
            return False
        finally:
            one.perils.rate, one.perils.left = 0.0, None
        return True

    @rule(partition=st.sampled_from("ab"), count=st.integers(1, 5), gap=st.integers(0, 2))
    def produce(self, partition: str, count: int, gap: int) -> None:
        self.site.source.produce(partition, count, gap)

    @rule(ms=st.sampled_from([1, 10, 100, 100, 20 * 60_000]))
    def wait(self, ms: int) -> None:
        self.site.clock.ms += ms

    @rule(who=st.integers(0, 2), act=st.sampled_from(["mint", "step", "step", "compact"]))
    def work(self, who: int, act: str) -> None:
        assert self.attempt(who, act)

    @rule(who=st.integers(0, 2), act=st.sampled_from(["mint", "step", "step", "compact"]))
    def work_on_failing_stores(self, who: int, act: str) -> None:
        self.instances[who].perils.rate = 0.4
        self.attempt(who, act)

    @rule(
        who=st.integers(0, 2),
        act=st.sampled_from(["mint", "step", "step", "compact"]),
        left=st.integers(0, 25),
    )
    def crash(self, who: int, act: str, left: int) -> None:
        self.instances[who].perils.left = left
        self.attempt(who, act)

    @rule(who=st.integers(0, 2), partition=st.sampled_from("ab"), back=st.integers(0, 3))
    def ask(self, who: int, partition: str, back: int) -> None:
        offset = self.site.source.next.get(partition, 0) - 1 - back
        if offset < 0:
            return
        try:
            binding = self.instances[who].minter.get_binding(partition, offset)
        except BindingCompacted:
            return
        self.site.audit()
        assert binding.ts == self.site.time_of(partition, offset)

    @rule(who=st.integers(0, 2), other=st.integers(0, 2), minted=st.booleans())
    def work_at_once(self, who: int, other: int, minted: bool) -> None:
        """While one has read the bindings and reads the source, another one writes, further or as far."""
        if who == other:
            return

        def meanwhile() -> None:
            if minted:
                self.site.clock.ms += 5
                assert self.attempt(other, "mint")
            assert self.attempt(other, "step")

        self.instances[who].minter.mint(self.site.source.high_watermarks())
        self.site.source.meanwhile = meanwhile
        assert self.attempt(who, "step")
        self.site.source.meanwhile = None

    @rule()
    def maintain(self) -> None:
        self.site.persist.maintain(self.site.bindings, full=True)
        self.site.persist.maintain(self.site.data, full=True)

    @invariant()
    def data_is_the_models(self) -> None:
        if hasattr(self, "site"):
            self.site.audit()
            self.site.check_data()

    def teardown(self) -> None:
        if not hasattr(self, "site"):
            return
        last = self.fresh()
        last.minter.mint(self.site.source.high_watermarks())
        upper = self.site.audit()
        assert last.writer.step() == upper
        assert self.site.check_data() == sum(map(len, self.site.source.messages.values()))


TestIngestion = Ingestion.TestCase
TestIngestion.settings = settings(max_examples=12, stateful_step_count=25, deadline=None)
