"""Traces: the updates of an arrangement kept near the process, as sorted runs in which keys are found without reading
the rest.

Promise: `Trace.find` returns every update at or before a time whose leading key columns are among those asked for,
for keys of any types including NULL, in O(k log n) for k keys. It may return others too (two keys with one hash),
never fewer. A trace is a cache: it is made of what is in the arrangement's shard and of the updates that steps add,
and losing it costs only time.

A run is a table sorted by a 64-bit hash of the key, with the hashes beside it; a lookup is two binary searches in
each run. Hashes are spread evenly, so one method serves keys of every type and any number of columns, and a large
run, which is a memory-mapped file, is touched on a few pages for each key. When there are many runs, small ones are
merged first, as in a log-structured merge tree (differential dataflow's "spine"). A merge consolidates, after
advancing times to the earliest that a reader may still ask for. The owner of a trace may merge beside its readers,
at a convenient moment (`Trace.due`, `Merge`); `add` merges itself only if nobody has for long. The same holds for
sorting what was added (`Trace.sort`), which a reader does if nobody has.

If a trace has an `order`, a run is in that order within each hash, and `Trace.first` finds the rows of a key that
come first (or last) in it without reading the others: it takes the first few rows of each run, and more until enough
of them are certain. Certain are the rows before the last one taken of any run that has more: whatever else is in the
runs comes after them.

Trade-off: a hash keeps no order of keys, so what goes by order across keys (the events of a temporal filter) scans
the whole trace.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from mzsql.compute.replica.arrangements.ordering import Ordering, differs
from mzsql.compute.replica.arrangements.runs import (
    Files,
    Hasher,
    Hashes,
    Places,
    Run,
    in_order,
    key_hashes,
    repeated,
)
from mzsql.persist import DIFF_COLUMN, TIME_COLUMN, all_at, until
from mzsql.persist.words import integers_of
from mzsql.repr.frontier import Timestamp

_LOG = logging.getLogger(__name__)

#: Runs of more bytes than this are memory-mapped files.
MAPPED_BYTES = 16 * 1024 * 1024
#: With this many runs, the last ones are merged, together with those before them that are not much larger. This is
#: deferred work.
FAN = 8
#: With this many runs, because deferred work did not merge them, `Trace.add` merges them itself.
MOST_RUNS = 4 * FAN
#: How many rows more than are needed `first` takes of each run at first.
_SPARE = 8


class Found:
    """The places of the rows that a lookup found. The rows are counted, but not copied before `rows` is called."""

    def __init__(
        self,
        pieces: Sequence[tuple[Run, npt.NDArray[np.int64] | None]],
        as_of: Timestamp,
        schema: pa.Schema,
    ) -> None:
        self._pieces = pieces
        self._as_of = as_of
        self._schema = schema

    def joined(self, other: Found) -> Found:
        """The rows of both, each once."""
        pieces = {id(run): (run, places) for run, places in self._pieces}
        for run, places in other._pieces:
            _, known = pieces.get(id(run), (run, np.empty(0, np.int64)))
            # None stands for the whole run, which has whatever the other one found.
            either = None if places is None or known is None else np.union1d(known, places)
            pieces[id(run)] = (run, either)
        return Found(list(pieces.values()), self._as_of, self._schema)

    @property
    def count(self) -> int:
        """Number of updates."""
        return sum(
            run.rows.num_rows if places is None else len(places) for run, places in self._pieces
        )

    def rows(self) -> pa.Table:
        """The updates, with all times set to the time asked for. Not consolidated."""
        batches = []
        for run, places in self._pieces:
            batch = run.rows if places is None else run.rows.take(pa.array(places))
            if run.last > self._as_of:
                batch = until(batch, self._as_of)
            if batch.num_rows:
                batches.append(batch)
        # A step takes its state as it stands at one time (decision 4 of docs/architecture.md); with their own times,
        # equal rows would not add up.
        return all_at(pa.Table.from_batches(batches, self._schema), self._as_of)


class Merge:
    """Some adjacent runs of a trace, to be merged into one."""

    def __init__(self, trace: Trace, runs: Sequence[Run], since: Timestamp) -> None:
        self.runs = list(runs)
        self._trace = trace
        self._since = since

    def made(self) -> Run | None:
        """Compute the merged run; None if nothing is left. May run beside the trace's readers and beside `Trace.add`."""
        return self._trace.merged(self.runs, self._since)


class FirstRows:
    """The first rows of some keys.

    Attributes:
        found: where they are: all updates of each of these rows.
        counts: for each key the number of rows, multiplicities counted.
        whole: for each key whether these are all its rows.
        looked: how many updates were looked at.
    """

    def __init__(
        self, found: Found, counts: Places, whole: npt.NDArray[np.bool_], looked: int
    ) -> None:
        self.found = found
        self.counts = counts
        self.whole = whole
        self.looked = looked


class Trace:
    """An arrangement's updates, readable from `since` on. For one thread at a time.

    Args:
        schema: the arrangement's columns, key columns first, then mz_time and mz_diff.
        key_arity: number of key columns.
        since: the earliest time at which the contents can be read.
        order: the order of the rows of a key; None if they have none.
        hasher: hashes values of types without a fixed width.
        consolidated: adds up equal updates.
        sums: whether updates of different rows may be added up, too (partial sums).
        files: stores large runs.
    """

    def __init__(
        self,
        schema: pa.Schema,
        key_arity: int,
        since: Timestamp,
        *,
        hasher: Hasher,
        consolidated: Callable[[pa.Table], pa.Table],
        files: Files,
        order: Ordering | None = None,
        sums: bool = False,
    ) -> None:
        self.since = since
        self.order = order
        self._sums = sums
        self._schema = schema
        self._key_arity = key_arity
        self._hasher = hasher
        self._consolidated = consolidated
        self._files = files
        self._runs: list[Run] = []
        #: updates that were added and are not sorted yet
        self._new: list[pa.Table] = []
        #: how many runs at the beginning came from `take`; they are too large to be merged for their number alone
        self._taken = 0

    @property
    def runs(self) -> tuple[Run, ...]:
        """All updates as sorted runs, oldest first."""
        return tuple(self._sorted())

    @property
    def updates(self) -> int:
        """Number of updates."""
        made = int(sum(run.rows.num_rows for run in self._runs))
        return made + int(sum(one.num_rows for one in self._new))

    @property
    def bytes(self) -> int:
        """Bytes in memory, without memory-mapped runs."""
        kept = sum(run.bytes for run in self._runs if not run.mapped)
        return kept + int(sum(one.nbytes for one in self._new))

    def add(self, updates: pa.Table, passed: Timestamp) -> None:
        """Add updates. No reader will ask for a time before `passed` any more."""
        self.since = max(self.since, passed)
        if updates.num_rows:
            self._new.append(updates)
        # Merges are left to a convenient moment, but not for ever: each lookup looks into every run.
        if self._small >= MOST_RUNS:
            self.sort()
            merge = self.due()
            assert merge is not None
            self.settle(merge, merge.made())

    def sort(self) -> None:
        """Sort what was added into runs, so that no reader has to."""
        self._sorted()

    def _sorted(self) -> list[Run]:
        """All runs, after sorting what was added."""
        while self._new:
            # Removed only after it was sorted: if sorting fails, the next call tries again.
            self._runs.append(self._run(self._new[0]))
            del self._new[0]
        return self._runs

    @property
    def _small(self) -> int:
        return len(self._runs) + len(self._new) - self._taken

    @property
    def unsorted(self) -> bool:
        """Whether there is something for `sort` to do."""
        return bool(self._new)

    def due(self) -> Merge | None:
        """The merge to do next, of sorted runs, or None if there are few runs."""
        tail = self._tail()
        return Merge(self, self._runs[-tail:], self.since) if tail else None

    def settle(self, merge: Merge, made: Run | None) -> None:
        """Put the result of a merge in place of its runs, unless these were replaced meanwhile."""
        runs = merge.runs
        first = next((at for at, run in enumerate(self._runs) if run is runs[0]), None)
        if first is not None and self._runs[first : first + len(runs)] == runs:
            self._runs[first : first + len(runs)] = [made] if made is not None else []
            # A run from `take` that was merged after all counts among the small ones from now on.
            self._taken = min(self._taken, first)

    def run_of(self, updates: pa.Table) -> Run | None:
        """Make a run of updates, for `take`; on any thread, beside other use of the trace. None if there are no
        updates.
        """
        return self._run(updates) if updates.num_rows else None

    def take(self, runs: Sequence[Run]) -> None:
        """Take over runs made by `run_of`, as the first of a trace that has no updates yet."""
        assert not self._runs
        assert not self._new
        self._runs = list(runs)
        self._taken = len(self._runs)

    def _tail(self) -> int:
        """How many runs at the end should be merged; 0 if none."""
        small = len(self._runs) - self._taken
        if small < FAN:
            return 0
        taken, rows = 0, 0
        for run in reversed(self._runs):
            # A much larger run (one from `take`, above all) is read again only when as many updates have come since.
            if taken >= min(FAN - 1, small) and run.rows.num_rows > rows:
                break
            taken, rows = taken + 1, rows + run.rows.num_rows
        return taken

    def merged(self, runs: Sequence[Run], since: Timestamp) -> Run | None:
        """Merge runs into one, with times before `since` set to `since`; None if nothing is left. Changes nothing, so
        others may read meanwhile.
        """
        rows = pa.Table.from_batches([run.rows for run in runs], self._schema)
        position = self._schema.get_field_index(TIME_COLUMN)
        # Nobody reads at a time before `since`, so what happened before it may add up as if it had happened then.
        times = pc.max_element_wise(rows.column(TIME_COLUMN), pa.scalar(since, pa.int64()))
        rows = rows.set_column(position, self._schema.field(position), times)
        if self._sums or len(self._schema) == 2:  # all rows of no columns are one
            rows, hashes = self._consolidated(rows), None
        else:
            rows, hashes = self._added_up(rows, np.concatenate([run.hashes for run in runs]))
        return self._run(rows, hashes) if rows.num_rows else None

    def _added_up(self, rows: pa.Table, hashes: Hashes) -> tuple[pa.Table, Hashes]:
        """Add up equal updates; return the rows, and the hashes of their keys.

        Only rows whose hash occurs more than once are consolidated: most updates have no counterpart in the same
        runs.
        """
        columns = [name for name in rows.column_names if name not in (TIME_COLUMN, DIFF_COLUMN)]
        twice = repeated(key_hashes(rows.select(columns), self._hasher))
        if not twice.any():
            return rows, hashes
        some = self._consolidated(rows.filter(pa.array(twice)))
        made = self._key_hashes(some)
        left = rows.filter(pa.array(~twice))
        return pa.concat_tables([left, some]), np.concatenate([hashes[~twice], made])

    def _key_hashes(self, rows: pa.Table) -> Hashes:
        if not self._key_arity:
            return np.zeros(rows.num_rows, np.uint64)
        return key_hashes(rows.select(list(range(self._key_arity))), self._hasher)

    def _run(self, updates: pa.Table, hashes: Hashes | None = None) -> Run:
        """Sort updates into a run. `hashes` are those of their keys, if they are known."""
        arity = self._key_arity
        bounds = pc.min_max(updates.column(TIME_COLUMN)).as_py()
        batch = pa.RecordBatch.from_arrays(
            [_one_chunk(column) for column in updates.columns], schema=self._schema
        )
        if hashes is None:
            hashes = self._key_hashes(updates)
        if self.order is not None:
            order = self.order.sorted(batch, hashes if arity else None)
            batch, hashes = batch.take(pa.array(order)), hashes[order]
        elif arity:
            order, hashes = in_order(hashes)
            batch = batch.take(pa.array(order))
        run = Run(batch, arity, hashes, (bounds["min"], bounds["max"]))
        if self.order is not None:
            run.mixed = _mixes(batch, hashes, arity)
        return self._kept(run) if run.bytes > MAPPED_BYTES else run

    def _kept(self, run: Run) -> Run:
        """Store a large run in files. If they cannot be written it stays in memory, which costs memory but no result."""
        try:
            return self._files.put(run)
        except OSError as error:
            _LOG.warning("%d bytes of an arrangement stay in memory: %s", run.bytes, error)
            return run

    # --- reading ---

    def find(self, wanted: Hashes, arity: int, as_of: Timestamp) -> Found:
        """The updates at or before a time whose leading columns equal one of the keys (and perhaps others).

        Args:
            wanted: the `key_hashes` of the keys, each once, sorted.
            arity: number of columns of the keys.
            as_of: at or after `since`.
        """
        assert as_of >= self.since
        pieces = []
        for run in self._sorted():
            # A run may lie beyond the time as a whole: dataflows share the trace, and others have stepped further.
            if run.first > as_of:
                continue
            begin, end, order = run.places(wanted, arity, self._hasher)
            places = _stretched(begin, end)
            if len(places):
                pieces.append((run, places if order is None else order[places]))
        return Found(pieces, as_of, self._schema)

    def first(self, wanted: Hashes, as_of: Timestamp, need: int, *, back: bool) -> FirstRows:
        """The rows of whole keys that come first in the trace's order.

        Args:
            wanted: the `key_hashes` of the keys, each once, sorted; a single 0 if the trace has no key columns.
            as_of: at or after `since`.
            need: at least so many rows of each key, multiplicities counted, if it has them.
            back: take the last rows instead.
        """
        assert as_of >= self.since
        runs = [run for run in self._sorted() if run.first <= as_of]
        # Where two keys have one hash their rows alternate, so that the first of a stretch may all be the other
        # key's.
        if not runs or any(run.mixed for run in runs):
            return self._whole(wanted, as_of)
        spans = [run.places(wanted, self._key_arity, self._hasher)[:2] for run in runs]
        total = sum(int((end - begin).sum()) for begin, end in spans)
        if total <= len(wanted) * need + _SPARE:
            # Little more than is needed: taking all takes less than judging which come first.
            rows = [(run, _stretched(*span)) for run, span in zip(runs, spans, strict=True)]
            return _all_of(Found(rows, as_of, self._schema), wanted, total)
        kept: list[list[Places]] = [[] for _ in runs]
        counts = np.zeros(len(wanted), np.int64)
        whole = np.zeros(len(wanted), np.bool_)
        left, most, looked = np.arange(len(wanted)), need + _SPARE, 0
        while len(left):
            taken = [_taken(begin[left], end[left], most, back) for begin, end in spans]
            looked += sum(len(one.places) for one in taken)
            judged = self._certain(runs, taken, len(left), as_of, back)
            if judged is None:
                return self._whole(wanted, as_of)
            certain, amounts, all_of = judged
            done = all_of | (amounts >= need)
            counts[left], whole[left] = amounts, all_of
            for number, (one, sure) in enumerate(zip(taken, certain, strict=True)):
                kept[number].append(one.places[sure & done[one.keys]])
            # Four times as many: retractions in one run may take away rows of another, and a key is looked at a few
            # times, not once for each such row.
            left, most = left[~done], most * 4
        pieces = [(run, np.concatenate(some)) for run, some in zip(runs, kept, strict=True) if some]
        return FirstRows(Found(pieces, as_of, self._schema), counts, whole, looked)

    def _whole(self, wanted: Hashes, as_of: Timestamp) -> FirstRows:
        """All rows of the keys, in the form of a result of `first`."""
        found = self.find(wanted, self._key_arity, as_of)
        return _all_of(found, wanted, found.count)

    def _certain(
        self,
        runs: Sequence[Run],
        taken: Sequence[_Taken],
        keys: int,
        as_of: Timestamp,
        back: bool,
    ) -> tuple[list[npt.NDArray[np.bool_]], Places, npt.NDArray[np.bool_]] | None:
        """Judge which of the rows taken from the runs are certain to be among the first.

        Returns:
            For each run which rows are certain (all their updates were taken); for each key how many rows these are;
                for each key whether they are all its rows. None if two different keys have one hash.
        """
        assert self.order is not None
        batches = [
            run.rows.take(pa.array(one.places)) for run, one in zip(runs, taken, strict=True)
        ]
        rows = pa.Table.from_batches(batches, self._schema)
        key_of = np.concatenate([np.empty(0, np.int64), *(one.keys for one in taken)])
        edge = np.concatenate([np.empty(0, np.bool_), *(one.edges for one in taken)])
        by_key = np.argsort(key_of, kind="stable")
        if _mixes(rows.take(pa.array(by_key)), key_of[by_key], self._key_arity):
            return None
        ranks = self.order.ranks(rows, key_of)
        if back:
            ranks = -ranks
        # The border of a key is the earliest last row taken from a run that has more of the key: rows before it are
        # certain.
        border = np.full(keys, np.iinfo(np.int64).max)
        np.minimum.at(border, key_of[edge], ranks[edge])
        sure = ranks < border[key_of]
        diffs = integers_of(rows.column(DIFF_COLUMN))
        times = integers_of(rows.column(TIME_COLUMN))
        amounts = np.zeros(keys, np.int64)
        here = sure & (times <= as_of)
        np.add.at(amounts, key_of[here], diffs[here])
        all_of = np.ones(keys, np.bool_)
        all_of[key_of[edge]] = False
        ends = np.cumsum([len(one.places) for one in taken])[:-1]
        return list(np.split(sure, ends)), amounts, all_of

    def all(self, as_of: Timestamp) -> Found:
        """All updates at or before a time."""
        assert as_of >= self.since
        pieces = [(run, None) for run in self._sorted() if run.first <= as_of]
        return Found(pieces, as_of, self._schema)

    def between(self, low: int, high: int, as_of: Timestamp) -> Found:
        """The updates at or before `as_of` whose first column, an integer, is between `low` and `high`, both included."""
        assert as_of >= self.since
        pieces = []
        for run in self._sorted():
            if run.first <= as_of:
                column = run.rows.column(0)
                hit = pc.and_(pc.greater_equal(column, low), pc.less_equal(column, high))
                places = np.flatnonzero(hit.fill_null(False).to_numpy(zero_copy_only=False))
                pieces.append((run, places))
        return Found(pieces, as_of, self._schema)


class _Taken:
    """Rows taken from a run: their places, the number of each row's key, and whether it is the last one taken of a key
    that has more.
    """

    def __init__(self, places: Places, keys: Places, edges: npt.NDArray[np.bool_]) -> None:
        self.places = places
        self.keys = keys
        self.edges = edges


def _taken(begin: Places, end: Places, most: int, back: bool) -> _Taken:
    """At most `most` rows of each stretch from `begin` to `end`, from its beginning or (with `back`) its end."""
    sizes = end - begin
    counts = np.minimum(sizes, most)
    starts = end - counts if back else begin
    total = int(counts.sum())
    before = np.cumsum(counts) - counts
    places = np.repeat(starts - before, counts) + np.arange(total)
    edges = np.zeros(total, np.bool_)
    more = sizes > counts
    edges[(before if back else before + counts - 1)[more]] = True
    return _Taken(places, np.repeat(np.arange(len(sizes)), counts), edges)


def _all_of(found: Found, wanted: Hashes, looked: int) -> FirstRows:
    """All rows of keys, in the form of a result of `Trace.first`."""
    return FirstRows(found, np.zeros(len(wanted), np.int64), np.ones(len(wanted), np.bool_), looked)


def _stretched(begin: Places, end: Places) -> Places:
    """All places of stretches."""
    counts = end - begin
    if len(begin) == 1:
        return np.arange(begin[0], end[0])
    # Without a loop over stretches: place k of the result is k, moved by where its stretch begins less where it
    # begins in the result.
    starts = np.repeat(begin - (np.cumsum(counts) - counts), counts)
    made: Places = starts + np.arange(len(starts))
    return made


def _mixes(rows: pa.RecordBatch | pa.Table, hashes: npt.NDArray[Any], arity: int) -> bool:
    """Whether adjacent rows with the same hash have different keys."""
    same = hashes[1:] == hashes[:-1]
    return any(bool(np.any(same & differs(rows.column(i)))) for i in range(arity))


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
