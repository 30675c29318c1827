"""Any sequence of operations on several handles against a plain model, by hypothesis, which shrinks what fails to a short program.

The models are a dict, lists, and two integers. Handles are closed and opened anew on the way. Each kind is one case, ``state_machine``,
and each run of a machine works on keys of its own.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from typing import Any, ClassVar

import hypothesis
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky, FlakyStrategyDefinition, HypothesisException
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from mzsql.location import (
    ConsensusWait,
    ManyDeletable,
    RangeReadable,
    UsageError,
    Versioned,
)
from mzsql.testing.blob_cases import listed
from mzsql.testing.contract import Site
from mzsql.testing.expect import expect, expect_equal, expect_raises
from mzsql.testing.sites import BlobSite, ConsensusSite, OracleSite

_HANDLES = 3
_WHO = st.integers(0, _HANDLES - 1)
_BLOB_KEYS = st.sampled_from(
    ["a", "b/c", "b/d", "b e/ü", "long/" + "x" * 100, "b/c.parquet", "B/c"]
)
_PREFIXES = st.sampled_from(["", "b", "b/", "b/c", "z", "ü/x"])
_SEQNOS = st.integers(0, 8)


def run_machine(machine: type[RuleBasedStateMachine], site: Site) -> None:
    """Run ``machine``, whose ``site`` is set to this one, as often as the site's level and seed say.

    Raises:
        AssertionError: rules failed now and then: when the same operations were repeated they went otherwise.
            What fails each time is raised as it is.
    """
    runs = itertools.count()
    names = {"site": site, "runs": runs, "failures": []}
    bound: Any = type(machine.__name__, (machine,), names)
    chosen = settings(
        max_examples=site.sized(40, 250),
        stateful_step_count=site.sized(25, 50),
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        database=None,
        print_blob=False,
        suppress_health_check=list(HealthCheck),
    )
    try:
        run_state_machine_as_test(hypothesis.seed(site.seed)(bound), settings=chosen)
    except (Flaky, FlakyStrategyDefinition) as fickle:
        # The same operations went well, or otherwise wrong, when repeated: hypothesis tells of that, not of what went wrong.
        seen = bound.failures
        if not seen:
            raise
        told = "\n".join(dict.fromkeys(f"  {type(one).__name__}: {one}" for one in seen[:5]))
        raise AssertionError(
            f"now and then, and not each time the same operations are repeated:\n{told}"
        ) from fickle


class _Handles(RuleBasedStateMachine):
    """Several handles, kept over all runs of a machine, as opening is what takes long; a rule opens one anew."""

    site: Any
    runs: itertools.count[int]
    failures: ClassVar[list[Exception]]
    _kept: list[Any]

    def teardown(self) -> None:
        """Keep what went wrong, should it not go wrong again."""
        failure = sys.exc_info()[1]
        if isinstance(failure, Exception) and not isinstance(failure, HypothesisException):
            self.failures.append(failure)

    def handles(self, make: Callable[[], Any]) -> list[Any]:
        if not hasattr(type(self), "_kept"):
            type(self)._kept = [make() for _ in range(_HANDLES)]
        return type(self)._kept


class BlobMachine(_Handles):
    """A Blob against a dict."""

    @initialize()
    def start(self) -> None:
        """Keys of this run's own."""
        self.run = f"run{next(self.runs)}/"
        self.model: dict[str, bytes] = {}
        self.blobs = self.handles(self.site.open)

    @rule(who=_WHO)
    def reopen(self, who: int) -> None:
        """Close a handle and open another."""
        self.blobs[who].close()
        self.blobs[who] = self.site.open()

    @rule(who=_WHO, key=_BLOB_KEYS, value=st.binary(max_size=64), other=_WHO)
    def set(self, who: int, key: str, value: bytes, other: int) -> None:
        """Set; any handle sees it."""
        self.blobs[who].set(self.run + key, value)
        self.model[key] = value
        self.get(other, key)

    @rule(who=_WHO, key=_BLOB_KEYS)
    def get(self, who: int, key: str) -> None:
        """Get."""
        expect_equal(self.blobs[who].get(self.run + key), self.model.get(key), f"get {key!r}")

    @rule(who=_WHO, key=_BLOB_KEYS, other=_WHO)
    def delete(self, who: int, key: str, other: int) -> None:
        """Delete; any handle sees it, and all the rest."""
        old = self.model.pop(key, None)
        size = None if old is None else len(old)
        expect_equal(self.blobs[who].delete(self.run + key), size, f"delete {key!r}")
        self.listing(other, "")

    @rule(who=_WHO, prefix=_PREFIXES)
    def listing(self, who: int, prefix: str) -> None:
        """List."""
        wanted = {self.run + k: len(v) for k, v in self.model.items() if k.startswith(prefix)}
        found = listed(self.blobs[who], self.run + prefix)
        expect_equal(found, wanted, f"listing of {prefix!r}")

    @rule(who=_WHO, keys=st.lists(_BLOB_KEYS, max_size=4, unique=True))
    def delete_many(self, who: int, keys: list[str]) -> None:
        """Delete many, where offered."""
        if isinstance(self.blobs[who], ManyDeletable):
            self.blobs[who].delete_many([self.run + key for key in keys])
            for key in keys:
                self.model.pop(key, None)

    @rule(who=_WHO, key=_BLOB_KEYS, offset=st.integers(0, 70), length=st.integers(0, 70))
    def get_range(self, who: int, key: str, offset: int, length: int) -> None:
        """Get a range, where offered."""
        if isinstance(self.blobs[who], RangeReadable):
            value = self.model.get(key)
            wanted = None if value is None else value[offset : offset + length]
            found = self.blobs[who].get_range(self.run + key, offset, length)
            expect_equal(found, wanted, f"range {offset}+{length} of {key!r}")


class ConsensusMachine(_Handles):
    """Two keys of a Consensus against two lists."""

    @initialize()
    def start(self) -> None:
        """Keys of this run's own."""
        self.run = f"run{next(self.runs)}-"
        self.model: dict[str, list[Versioned]] = {"k": [], "l": []}
        self.stores = self.handles(self.site.open)
        self.written = 0

    @rule(who=_WHO)
    def reopen(self, who: int) -> None:
        """Close a handle and open another."""
        self.stores[who].close()
        self.stores[who] = self.site.open()

    def _append(self, who: int, key: str, expected: int | None) -> None:
        log = self.model[key]
        newest = log[-1].seqno if log else None
        self.written += 1
        new = Versioned(0 if expected is None else expected + 1, b"%d" % self.written)
        won = self.stores[who].compare_and_set(self.run + key, expected, new)
        expect_equal(won, expected == newest, f"compare_and_set expecting {expected} at {newest}")
        if won:
            log.append(new)

    @rule(who=_WHO, key=st.sampled_from("kl"), count=st.integers(1, 4))
    def append(self, who: int, key: str, count: int) -> None:
        """Append some, expecting what is there."""
        log = self.model[key]
        for _ in range(count):
            self._append(who, key, log[-1].seqno if log else None)

    @rule(who=_WHO, key=st.sampled_from("kl"), expected=st.one_of(st.none(), _SEQNOS))
    def expect_any(self, who: int, key: str, expected: int | None) -> None:
        """Compare and set, whatever is there."""
        self._append(who, key, expected)

    @rule(who=_WHO, key=st.sampled_from("kl"), start=_SEQNOS, limit=st.integers(0, 4))
    def scan(self, who: int, key: str, start: int, limit: int) -> None:
        """Scan."""
        wanted = [entry for entry in self.model[key] if entry.seqno >= start][:limit]
        found = self.stores[who].scan(self.run + key, start, limit)
        expect_equal(found, wanted, f"scan from {start}, at most {limit}")

    @rule(who=_WHO, key=st.sampled_from("kl"))
    def head(self, who: int, key: str) -> None:
        """The head: of another handle's entry a recent one, so it must be in the log, or have been."""
        log = self.model[key]
        found = self.stores[who].head(self.run + key)
        if not log:
            expect_equal(found, None, "head of an empty log")
        elif found is not None and found.seqno >= log[0].seqno:
            expect(found in log, f"a head that is not in the log: {found}")
        else:
            expect(found is None or found.seqno < log[0].seqno, f"head {found}")

    @rule(who=_WHO, key=st.sampled_from("kl"), back=st.integers(-1, 3), other=_WHO)
    def truncate(self, who: int, key: str, back: int, other: int) -> None:
        """Truncate to about the newest entry; any handle sees what is left."""
        log, store = self.model[key], self.stores[who]
        seqno = max(0, (log[-1].seqno if log else 0) - back)
        what = f"truncate to {seqno}"
        if not log or seqno > log[-1].seqno:
            expect_raises(UsageError, what, store.truncate, self.run + key, seqno)
            return
        kept = [entry for entry in log if entry.seqno >= seqno]
        expect_equal(store.truncate(self.run + key, seqno), len(log) - len(kept), what)
        self.model[key] = kept
        self.scan(other, key, 0, 100)

    @rule(who=_WHO, key=st.sampled_from("kl"), after=st.integers(-1, 8))
    def wait(self, who: int, key: str, after: int) -> None:
        """Wait without time, where offered: what is there is seen."""
        if isinstance(self.stores[who], ConsensusWait):
            log = self.model[key]
            there = bool(log) and log[-1].seqno > after
            found = self.stores[who].wait(self.run + key, after, 0.0)
            expect(there or not found, f"wait says there is an entry beyond {after}")

    @rule(who=_WHO)
    def list_keys(self, who: int) -> None:
        """List the keys."""
        wanted = {self.run + key for key, log in self.model.items() if log}
        found = {key for key in self.stores[who].list_keys() if key.startswith(self.run)}
        expect_equal(found, wanted, "keys")


class OracleMachine(_Handles):
    """A timeline against two integers."""

    @initialize(clock=st.integers(0, 20))
    def start(self, clock: int) -> None:
        """A timeline of this run's own."""
        self.timeline = f"run{next(self.runs)}"
        self.clock = clock
        self.read = self.write = 0
        self.oracles = [self._open() for _ in range(_HANDLES)]

    def _open(self) -> Any:
        return self.site.open(lambda: self.clock, self.timeline)

    def teardown(self) -> None:
        """Close this run's handles."""
        super().teardown()
        for oracle in getattr(self, "oracles", []):
            oracle.close()

    @rule(who=_WHO)
    def reopen(self, who: int) -> None:
        """Close a handle and open another."""
        self.oracles[who].close()
        self.oracles[who] = self._open()

    @rule(clock=st.integers(0, 60))
    def tick(self, clock: int) -> None:
        """The clock shows another time, an earlier one too."""
        self.clock = clock

    @rule(who=_WHO)
    def write_ts(self, who: int) -> None:
        """Allocate."""
        found = self.oracles[who].write_ts()
        expect(found > self.write, f"allocated {found} after {self.write}")
        expect(found >= self.clock, f"allocated {found} when the clock was {self.clock}")
        self.write = found

    @rule(who=_WHO)
    def peek_write_ts(self, who: int) -> None:
        """Peek."""
        expect_equal(self.oracles[who].peek_write_ts(), self.write, "peek_write_ts")

    @rule(who=_WHO)
    def read_ts(self, who: int) -> None:
        """Read."""
        expect_equal(self.oracles[who].read_ts(), self.read, "read_ts")

    @rule(who=_WHO, off=st.integers(-3, 3))
    def apply_write(self, who: int, off: int) -> None:
        """Apply a timestamp about the latest allocation."""
        ts = max(0, self.write + off)
        self.oracles[who].apply_write(ts)
        self.read, self.write = max(self.read, ts), max(self.write, ts)


def blob_machine(site: BlobSite) -> None:
    """Any sequence of operations on several handles does what it does to a dict."""
    run_machine(BlobMachine, site)


def consensus_machine(site: ConsensusSite) -> None:
    """Any sequence of operations on several handles does what it does to lists."""
    run_machine(ConsensusMachine, site)


def oracle_machine(site: OracleSite) -> None:
    """Any sequence of operations on several handles does what it does to two integers."""
    run_machine(OracleMachine, site)
