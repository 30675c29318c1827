"""A shard against a plain model: any sequence of calls by two clients, also over backends that fail."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from persist_model import (
    SCHEMA,
    ManualClock,
    another,
    blobs,
    counted,
    expected_at,
    mem_client,
    referenced,
    updates,
)

from mzsql.location import Indeterminate, LocationError
from mzsql.location.mem import MemBlob, MemConsensus
from mzsql.persist import (
    ExpiredHandle,
    PersistClient,
    Settings,
    SinceViolation,
    UpperMismatch,
)
from mzsql.persist.codec import decode_entry
from mzsql.persist.transitions import apply_diff
from mzsql.testing import Faults, FaultyBlob, FaultyConsensus

_ROW = st.tuples(
    st.one_of(st.none(), st.integers(0, 3)), st.sampled_from(["", "a", None]), st.integers(-2, 2)
)


class ShardMachine(RuleBasedStateMachine):
    """Two processes on one shard; the model is the list of all updates ever appended."""

    @initialize(inline=st.sampled_from([0, 500, 65536]), interval=st.integers(3, 20))
    def start(self, inline, interval):
        tuning = {
            "inline_bytes": inline,
            "inline_total_bytes": 3000,
            "rollup_interval": interval,
            "compaction_fanout": 3,
            "reader_lease_ms": 60_000,
        }
        first = mem_client(**tuning)
        self.clients = [first, another(first, **tuning)]
        self.shard_id = first.new_shard_id()
        self.writers = [c.open_writer(self.shard_id, SCHEMA) for c in self.clients]
        self.readers = [c.open_reader(self.shard_id) for c in self.clients]
        self.history = []
        self.upper = 0
        self.sinces = [0, 0]
        self.shard_since = 0
        self.listens = [r.listen(0) for r in self.readers]
        self.heard = [[], []]
        self.heard_to = [1, 1]

    @rule(
        who=st.integers(0, 1),
        rows=st.lists(_ROW, max_size=6),
        span=st.integers(1, 4),
        data=st.data(),
    )
    def compare_and_append(self, who, rows, span, data):
        times = [self.upper + data.draw(st.integers(0, span - 1)) for _ in rows]
        new = [(k, v, t, d) for (k, v, d), t in zip(rows, times, strict=True)]
        self.writers[who].compare_and_append(
            updates(new), expected_upper=self.upper, new_upper=self.upper + span
        )
        self.history += new
        self.upper += span

    @rule(who=st.integers(0, 1), off=st.sampled_from([-1, 1, 7]))
    def wrong_upper(self, who, off):
        expected = self.upper + off
        if expected < 0:
            return
        with pytest.raises(UpperMismatch) as caught:
            self.writers[who].compare_and_append(
                None, expected_upper=expected, new_upper=expected + 1
            )
        assert caught.value.current == self.upper

    @rule(who=st.integers(0, 1), rows=st.lists(_ROW, max_size=4), back=st.integers(0, 3))
    def append_definite(self, who, rows, back):
        lower = max(0, self.upper - back)
        known = [u for u in self.history if u[2] >= lower]
        new = [(k, v, self.upper, d) for k, v, d in rows]
        self.writers[who].append(updates(known + new), lower=lower, upper=self.upper + 1)
        self.history += new
        self.upper += 1

    @precondition(lambda self: self.upper > 0)
    @rule(who=st.integers(0, 1), data=st.data())
    def snapshot(self, who, data):
        as_of = data.draw(st.integers(0, self.upper - 1))
        reader = self.readers[who]
        if as_of < self.sinces[who]:
            with pytest.raises(SinceViolation):
                reader.snapshot_arrow(as_of)
            return
        assert counted(reader.snapshot_arrow(as_of)) == expected_at(self.history, as_of)
        total = {}
        for split in reader.snapshot(as_of, 2):
            for row, diff in counted(split.to_arrow()).items():
                total[row] = total.get(row, 0) + diff
        assert {r: d for r, d in total.items() if d} == expected_at(self.history, as_of)

    @rule(who=st.integers(0, 1), data=st.data())
    def exact_updates(self, who, data):
        first = 0 if self.sinces[who] == 0 else self.sinces[who] + 1
        lower = data.draw(st.integers(first, max(first, self.upper)))
        found = self.readers[who].updates(lower, max(lower, self.upper))
        wanted = {}
        for k, v, t, d in self.history:
            if t >= lower:
                wanted[(k, v, t)] = wanted.get((k, v, t), 0) + d
        assert counted(found) == {r: d for r, d in wanted.items() if d}

    @rule(who=st.integers(0, 1))
    def hear(self, who):
        if self.upper <= self.heard_to[who]:
            return
        table, frontier = next(self.listens[who])
        assert frontier == self.upper
        self.heard[who] += list(counted(table).items())
        self.heard_to[who] = frontier
        wanted = {}
        for k, v, t, d in self.history:
            if t > 0:
                wanted[(k, v, t)] = wanted.get((k, v, t), 0) + d
        sums = {}
        for row, diff in self.heard[who]:
            sums[row] = sums.get(row, 0) + diff
        assert sums == {r: d for r, d in wanted.items() if d}

    @rule(who=st.integers(0, 1), data=st.data())
    def downgrade(self, who, data):
        # Behind the listen, as whoever listens must.
        most = max(self.sinces[who], self.heard_to[who] - 1)
        since = data.draw(st.integers(self.sinces[who], most))
        self.readers[who].downgrade_since(since)
        self.sinces[who] = since
        self.shard_since = max(self.shard_since, min(self.sinces))

    @rule(who=st.integers(0, 1), full=st.booleans())
    def maintain(self, who, full):
        self.clients[who].maintain(self.shard_id, full=full)

    @rule(who=st.integers(0, 1))
    def restart(self, who):
        """A process dies and comes back with an empty cache and new handles."""
        old = self.clients[who]
        self.readers[who].expire()
        fresh = another(
            old,
            **{
                f: getattr(old.settings, f)
                for f in (
                    "inline_bytes",
                    "inline_total_bytes",
                    "rollup_interval",
                    "compaction_fanout",
                    "reader_lease_ms",
                )
            },
        )
        fresh._context.rng.seed(id(fresh))
        self.clients[who] = fresh
        self.writers[who] = fresh.open_writer(self.shard_id, SCHEMA)
        self.readers[who] = fresh.open_reader(self.shard_id)
        self.sinces[who] = self.readers[who].since
        assert self.sinces[who] == self.shard_since
        start = max(self.heard_to[who] - 1, self.sinces[who])
        self.listens[who] = self.readers[who].listen(start)

    @invariant()
    def state_is_whole(self):
        if not hasattr(self, "clients"):
            return
        states = [c.inspect(self.shard_id) for c in self.clients]
        assert states[0] == states[1]
        state = states[0]
        assert (state.upper, state.since) == (self.upper, self.shard_since)
        assert blobs(self.clients[0]) == referenced(state)
        bounds = [(b.lower, b.upper) for b in state.trace]
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(bounds))


TestShardMachine = ShardMachine.TestCase
TestShardMachine.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


def test_the_log_is_the_state():
    """Whoever applies the diffs to the first entry's state gets the state."""
    client = mem_client(compaction_fanout=3, rollup_interval=10**6)
    write, read = client.open_shard(client.new_shard_id(), SCHEMA)
    for i in range(20):
        write.compare_and_append(updates([(i, "v", i, 1)]), expected_upper=i, new_upper=i + 1)
    read.downgrade_since(10)
    entries = client.consensus.scan(write.shard_id, 0, 1000)
    state = decode_entry(entries[0].data, write.shard_id, 0).state
    for entry in entries[1:]:
        state = apply_diff(state, decode_entry(entry.data, write.shard_id, entry.seqno).diff)
    assert state == client.inspect(write.shard_id)
    # A change costs what it changes, not what there is.
    assert max(len(e.data) for e in entries[1:]) < 4000


@pytest.mark.parametrize("seed", range(12))
def test_faulty_backends_lose_and_double_nothing(seed):
    """Operations that fail before and after acting: what was acknowledged is there, once; what was refused is not."""
    faults = Faults(seed, 0.15)
    clock = ManualClock()
    tuning = Settings(
        inline_bytes=0 if seed % 2 else 600,
        inline_total_bytes=4000,
        rollup_interval=5,
        compaction_fanout=3,
        timeout=2.0,
        reader_lease_ms=10**9,
    )
    blob, consensus = MemBlob(), MemConsensus()
    clients = [
        PersistClient(
            FaultyBlob(blob, faults),
            FaultyConsensus(consensus, faults),
            clock=clock,
            rng=random.Random(seed * 10 + i),
            settings=tuning,
            background=False,
        )
        for i in range(2)
    ]
    rng = random.Random(seed)
    shard_id = clients[0].new_shard_id()
    writers = [c.open_writer(shard_id, SCHEMA, timeout=1e6) for c in clients]
    readers = [c.open_reader(shard_id, timeout=1e6) for c in clients]
    history, upper, doubtful = [], 0, 0
    for step in range(60):
        who = rng.randrange(2)
        rows = [(rng.randrange(5), "v", upper, rng.choice([1, 1, -1])) for _ in range(3)]
        try:
            writers[who].compare_and_append(
                updates(rows),
                expected_upper=upper,
                new_upper=upper + 1,
                timeout=rng.choice([0.001, 0.5, 1e6]),
            )
        except Indeterminate:
            doubtful += 1
            if readers[who].fetch_upper(timeout=1e6) == upper:
                continue  # it was not committed, and as another commit follows it never is
            history += rows
            upper += 1
        except LocationError:
            assert readers[who].fetch_upper(timeout=1e6) == upper
        else:
            history += rows
            upper += 1
        if upper and step % 5 == 0:
            as_of = upper - 1
            found = readers[1 - who].snapshot_arrow(as_of, timeout=1e6)
            assert counted(found) == expected_at(history, as_of)
            readers[who].downgrade_since(max(readers[who].since, as_of - 3), timeout=1e6)
    assert faults.injected > 20
    faults.heal()
    for client in clients:
        client.maintain(shard_id, full=True)
    assert counted(readers[0].snapshot_arrow(upper - 1)) == expected_at(history, upper - 1)
    for reader in readers:
        reader.heartbeat()
    clients[0].maintain(shard_id)
    state = clients[0].inspect(shard_id)
    assert referenced(state) <= {k for k, _ in blob.list_keys_and_metadata("")}


def test_an_indeterminate_commit_is_recognised():
    """The compare-and-set acts and then reports a failure: the retry finds its token, and nothing is written twice."""
    client = mem_client()
    write, read = client.open_shard(client.new_shard_id(), SCHEMA)
    act = client.consensus.compare_and_set
    failures = [True, True, False]

    def lossy(key, expected, new):
        done = act(key, expected, new)
        if failures and failures.pop(0):
            raise Indeterminate("lost the answer")
        return done

    client.consensus.compare_and_set = lossy
    write.compare_and_append(updates([(1, "a", 0, 1)]), expected_upper=0, new_upper=1)
    write.compare_and_append(updates([(1, "a", 1, 1)]), expected_upper=1, new_upper=2)
    assert counted(read.snapshot_arrow(1)) == {(1, "a", 1): 2}


def test_a_mismatch_after_a_doubtful_commit_whose_token_expired_stays_doubtful():
    client = mem_client(writer_lease_ms=1000)
    write, read = client.open_shard(client.new_shard_id(), SCHEMA)
    other = another(client, writer_lease_ms=1000).open_writer(write.shard_id)
    act = client.consensus.compare_and_set

    def lossy(key, expected, new):
        client.consensus.compare_and_set = act
        act(key, expected, new)
        other.fetch_upper()
        client._context.clock.ms += 5000
        other.compare_and_append(None, expected_upper=1, new_upper=2)
        raise Indeterminate("lost the answer")

    client.consensus.compare_and_set = lossy
    with pytest.raises(Indeterminate, match="may have been committed"):
        write.compare_and_append(updates([(1, "a", 0, 1)]), expected_upper=0, new_upper=1)
    assert counted(read.snapshot_arrow(1)) == {(1, "a", 1): 1}


def test_an_expired_handle_refuses():
    client = mem_client()
    write, _ = client.open_shard(client.new_shard_id(), SCHEMA)
    write.expire()
    write.expire()
    with pytest.raises(ExpiredHandle):
        write.compare_and_append(None, expected_upper=0, new_upper=1)
