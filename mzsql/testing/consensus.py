"""What every Consensus must do. Subclass `ConsensusContract` and say how to open yours."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mzsql.location import (
    MAX_SEQNO,
    Consensus,
    ConsensusWait,
    UsageError,
    Versioned,
    open_consensus,
)
from mzsql.testing.contract import Contract

_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("cas"), st.sampled_from("kl"), st.integers(-1, 6)),
        st.tuples(st.just("scan"), st.sampled_from("kl"), st.integers(0, 8)),
        st.tuples(st.just("truncate"), st.sampled_from("kl"), st.integers(0, 8)),
        st.tuples(st.just("head"), st.sampled_from("kl"), st.just(0)),
    ),
    max_size=30,
)


class ConsensusContract(Contract):
    """The cases of a Consensus."""

    def open_consensus(self, place: Path) -> Consensus:
        """A handle; two handles of one place see the same logs. Opens `url` through the installed plugins."""
        return open_consensus(self.url(place))

    @pytest.fixture
    def consensus(self, tmp_path: Path) -> Iterator[Consensus]:
        """A fresh store."""
        consensus = self.open_consensus(tmp_path)
        yield consensus
        consensus.close()

    def test_empty(self, consensus: Consensus) -> None:
        """A key without entries has no head, an empty scan, and cannot be truncated."""
        assert consensus.head("k") is None
        assert consensus.scan("k", 0, 10) == []
        assert list(consensus.list_keys()) == []
        with pytest.raises(UsageError):
            consensus.truncate("k", 0)

    def test_compare_and_set(self, consensus: Consensus) -> None:
        """Only the expectation that holds gets through, and a lost one changes nothing."""
        assert not consensus.compare_and_set("k", 0, Versioned(1, b"no"))
        assert consensus.compare_and_set("k", None, Versioned(0, b"a"))
        assert not consensus.compare_and_set("k", None, Versioned(0, b"again"))
        assert consensus.compare_and_set("k", 0, Versioned(1, b"b"))
        assert not consensus.compare_and_set("k", 0, Versioned(1, b"late"))
        assert not consensus.compare_and_set("k", 5, Versioned(6, b"ahead"))
        assert consensus.head("k") == Versioned(1, b"b")
        assert consensus.scan("k", 0, 10) == [Versioned(0, b"a"), Versioned(1, b"b")]

    @pytest.mark.parametrize(
        ("expected", "seqno"),
        [(None, 1), (0, 0), (0, 2), (3, 1), (None, -1), (MAX_SEQNO, MAX_SEQNO + 1), (-5, -4)],
    )
    def test_refused_steps(self, consensus: Consensus, expected: int | None, seqno: int) -> None:
        """Sequence numbers are contiguous, start at 0 and fit an int64."""
        with pytest.raises(UsageError):
            consensus.compare_and_set("k", expected, Versioned(seqno, b"x"))
        assert consensus.head("k") is None

    def test_scan_limits(self, consensus: Consensus) -> None:
        """A limit smaller than, equal to and larger than what there is."""
        entries = _filled(consensus, "k", 5)
        assert consensus.scan("k", 0, 3) == entries[:3]
        assert consensus.scan("k", 2, 3) == entries[2:]
        assert consensus.scan("k", 2, 100) == entries[2:]
        assert consensus.scan("k", 5, 100) == []
        assert consensus.scan("k", 0, 0) == []

    def test_truncate(self, consensus: Consensus) -> None:
        """Truncation counts, repeats, never takes the newest entry, and leaves nothing to start anew from."""
        entries = _filled(consensus, "k", 5)
        assert consensus.truncate("k", 0) == 0
        assert consensus.truncate("k", 3) == 3
        assert consensus.truncate("k", 3) == 0
        assert consensus.scan("k", 0, 10) == entries[3:]
        assert consensus.truncate("k", 4) == 1
        with pytest.raises(UsageError):
            consensus.truncate("k", 5)
        assert consensus.head("k") == entries[4]
        assert not consensus.compare_and_set("k", None, Versioned(0, b"anew"))
        assert consensus.compare_and_set("k", 4, Versioned(5, b"on"))

    def test_keys_are_apart(self, consensus: Consensus) -> None:
        """Keys do not touch each other."""
        _filled(consensus, "a", 3)
        _filled(consensus, "b", 1)
        consensus.truncate("a", 2)
        assert [v.seqno for v in consensus.scan("b", 0, 10)] == [0]
        assert sorted(consensus.list_keys()) == ["a", "b"]

    def test_values(self, consensus: Consensus) -> None:
        """Bytes come back as they went, empty ones and long ones."""
        value = bytes(range(256)) * 4096
        assert consensus.compare_and_set("k", None, Versioned(0, b""))
        assert consensus.compare_and_set("k", 0, Versioned(1, value))
        assert consensus.scan("k", 0, 10) == [Versioned(0, b""), Versioned(1, value)]

    def test_contention(self, consensus: Consensus, tmp_path: Path) -> None:
        """Of threads on two handles that race for each entry exactly one wins, and the log has no gap."""
        handles = [consensus, self.open_consensus(tmp_path)]
        won: list[tuple[int, bytes]] = []
        lock = threading.Lock()

        def race(name: bytes, mine: Consensus) -> None:
            for _ in range(15):
                while True:
                    head = mine.head("k")
                    expected = None if head is None else head.seqno
                    seqno = 0 if expected is None else expected + 1
                    if mine.compare_and_set("k", expected, Versioned(seqno, name)):
                        with lock:
                            won.append((seqno, name))
                        break

        threads = [
            threading.Thread(target=race, args=(b"%d" % i, handles[i % 2])) for i in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [tuple(v) for v in consensus.scan("k", 0, 1000)] == sorted(won)
        assert [seqno for seqno, _ in sorted(won)] == list(range(60))
        handles[1].close()

    def test_wait(self, consensus: Consensus, tmp_path: Path) -> None:
        """A follower that waits sees entries of its own and of other handles, and its timeout."""
        if not isinstance(consensus, ConsensusWait):
            pytest.skip("cannot wait")
        start = time.monotonic()
        assert not consensus.wait("k", -1, 0.05)
        assert time.monotonic() - start >= 0.04
        for handle in (consensus, self.open_consensus(tmp_path)):
            head = consensus.head("k")
            seqno = 0 if head is None else head.seqno + 1
            expected = None if head is None else head.seqno
            step = (handle, expected, Versioned(seqno, b"x"))
            timer = threading.Timer(0.05, lambda s=step: s[0].compare_and_set("k", s[1], s[2]))
            timer.start()
            start = time.monotonic()
            assert consensus.wait("k", seqno - 1, 10.0)
            assert time.monotonic() - start < 5.0
            assert consensus.wait("k", seqno - 1, 0.0)
            timer.join()

    @settings(
        max_examples=30,
        deadline=None,
        suppress_health_check=[
            HealthCheck.function_scoped_fixture,
            HealthCheck.differing_executors,
            HealthCheck.too_slow,
        ],
    )
    @given(steps=_STEPS)
    def test_against_a_list(self, consensus: Consensus, steps: list[tuple[str, str, int]]) -> None:
        """Any sequence of operations does what it does to a list."""
        run = uuid.uuid4()  # examples share the store, so each has keys of its own
        model: dict[str, list[Versioned]] = {}
        for number, (act, letter, n) in enumerate(steps):
            key = f"{letter}-{run}"
            log = model.setdefault(key, [])
            newest = log[-1].seqno if log else None
            if act == "cas":
                expected = None if n < 0 else n
                new = Versioned(n + 1 if n >= 0 else 0, b"%d" % number)
                won = consensus.compare_and_set(key, expected, new)
                assert won == (expected == newest)
                if won:
                    log.append(new)
            elif act == "scan":
                assert consensus.scan(key, n, 3) == [v for v in log if v.seqno >= n][:3]
            elif act == "head":
                assert consensus.head(key) == (log[-1] if log else None)
            elif newest is None or n > newest:
                with pytest.raises(UsageError):
                    consensus.truncate(key, n)
            else:
                kept = [v for v in log if v.seqno >= n]
                assert consensus.truncate(key, n) == len(log) - len(kept)
                model[key] = kept


def _filled(consensus: Consensus, key: str, count: int) -> list[Versioned]:
    entries = [Versioned(i, b"v%d" % i) for i in range(count)]
    for entry in entries:
        assert consensus.compare_and_set(key, entry.seqno - 1 if entry.seqno else None, entry)
    return entries
