"""Lookups: find and read the rows of arrangements that a step can touch, before the step runs.

Promise: the result has every row that `RenderedDataflow.lookups` says the step can touch, and of what is read on the
driver exactly those. Keys come from the step's deltas and from rows found before, until no new keys appear. If the
first rows of a key are enough, only those are read: as many as a step needs that retracts none of them, and `more`;
whether that was enough is checked after the step has run (`Firsts.lacking`), before anything is written. Beyond the
driver's bounds of rows and bytes an arrangement is left to Spark, as parts with at most 64 pushed ranges, or whole
if the ranges would touch most pages anyway.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import expressions as exp

from mzsql.compute.dependencies import ComputeSettings
from mzsql.compute.engines.driver import Driver
from mzsql.compute.engines.relations import PUSHED_RANGES, KeyRange
from mzsql.compute.replica.arrangements.arrangement import Arrangement
from mzsql.compute.replica.arrangements.cold import COLD_KEYS, first_from_shard, reads_cold
from mzsql.compute.replica.arrangements.ranges import merge_ranges, rangeable
from mzsql.compute.replica.arrangements.runs import Hashes, together, without
from mzsql.compute.replica.arrangements.trace import FirstRows, Trace
from mzsql.compute.replica.arrangements.trace import Found as TraceRows
from mzsql.compute.replica.target import no_updates
from mzsql.expr.functions.table import Engine
from mzsql.persist import DIFF_COLUMN, PartRef, ReadStats
from mzsql.persist.words import integers_of
from mzsql.render.rendered import Front, KeySource, Lookup
from mzsql.repr.errors import InternalError
from mzsql.repr.frontier import Timestamp
from mzsql.repr.lazy import lazy_property

#: With more than one random key per this many rows, nearly every page is touched, and pushing ranges only costs time.
_ROWS_A_PAGE = 1000

#: The hash of the only key of an arrangement without key columns.
_NO_KEY = np.zeros(1, np.uint64)

#: The most keys that are each pushed as a range of their own; more are merged into a few ranges.
_POINTS = 1024


@dataclass
class Pushed:
    """An arrangement that Spark reads itself. Its parts must be kept from deletion until it has."""

    arrangement: Arrangement
    parts: list[PartRef]
    ranges: list[KeyRange] | None


@dataclass
class Found:
    """The relations that a step reads: tables on the driver, and arrangements left to Spark."""

    tables: dict[str, pa.Table]
    pushed: dict[str, Pushed]
    stats: ReadStats
    #: for arrangements of which only the first rows of keys were read: what was read of each key
    firsts: dict[str, Firsts] = field(default_factory=dict)


class Firsts:
    """How much was read of the keys of an arrangement of which only first rows were read."""

    def __init__(self, arrangement: Arrangement, fronts: Sequence[Front]) -> None:
        self._arrangement = arrangement
        self._fronts = tuple(fronts)
        self._hashes: list[Hashes] = []
        self._spare: list[npt.NDArray[np.int64]] = []

    def add(self, hashes: Hashes, found: Sequence[FirstRows]) -> None:
        """Record keys that were read, with what was found of each front."""
        spare = np.full(len(hashes), _ENOUGH)
        for front, one in zip(self._fronts, found, strict=True):
            more = np.where(one.whole, _ENOUGH, one.counts - front.count)
            spare = np.minimum(spare, more)
        self._hashes.append(hashes)
        self._spare.append(spare)

    def add_one(self, hashes: Hashes, counts: Sequence[int], *, whole: bool) -> None:
        """As `add`, for one key."""
        pairs = zip(self._fronts, counts, strict=True)
        spare = _ENOUGH if whole else min(count - front.count for front, count in pairs)
        self._hashes.append(hashes)
        self._spare.append(np.array([spare], np.int64))

    def lacking(self, updates: pa.Table) -> int:
        """How many rows of a key, beyond those usually needed, a step with these updates of the arrangement needs; 0 if
        what was read is enough.

        Raises:
            InternalError: the step changed a key that was not read.
        """
        gone = updates.filter(pc.less(updates.column(DIFF_COLUMN), 0))
        if not gone.num_rows:
            return 0
        hashes = self._arrangement.hashes_of(gone)
        keys, at = np.unique(hashes, return_inverse=True)
        lost = np.zeros(len(keys), np.int64)
        np.subtract.at(lost, at, integers_of(gone.column(DIFF_COLUMN)))
        known = np.concatenate([np.empty(0, np.uint64), *self._hashes])
        spare = np.concatenate([np.empty(0, np.int64), *self._spare])
        order = np.argsort(known)
        known, spare = known[order], spare[order]
        places = np.minimum(np.searchsorted(known, keys), max(len(known) - 1, 0))
        if not len(known) or bool(np.any(known[places] != keys)):
            raise InternalError(f"a step changed keys of {self._arrangement.desc.name} unseen")
        return int(lost.max()) if bool(np.any(spare[places] < lost)) else 0


#: More rows than any key has.
_ENOUGH = np.iinfo(np.int64).max


@dataclass
class _State:
    """What is known of one arrangement while the lookups run."""

    lookup: Lookup
    arrangement: Arrangement
    as_of: Timestamp
    pieces: list[pa.Table] = field(default_factory=list)
    keys: pa.Table | None = None
    #: hashes of the keys that were looked up in the trace
    hashes: Hashes | None = None
    whole: bool = False
    pushed: bool = False
    #: incremented when `pieces` is replaced
    generation: int = 0
    #: for each source the generation of its relation that keys were taken from, and the number of pieces
    looked: dict[int, tuple[int, int]] = field(default_factory=dict)
    firsts: Firsts | None = None

    @lazy_property
    def parts(self) -> list[PartRef]:
        """The parts of the arrangement's shard, for reads from there."""
        return self.arrangement.parts(self.as_of)


class LookupRun:
    """The lookups of one step."""

    def __init__(
        self,
        lookups: Sequence[Lookup],
        deltas: Mapping[str, pa.Table | None],
        arrangements: Mapping[str, Arrangement],
        as_of: Timestamp,
        upper: Timestamp,
        driver: Driver,
        more: Mapping[str, int | None] | int | None = None,
        settings: ComputeSettings | None = None,
    ) -> None:
        """Prepare the lookups.

        Args:
            lookups: in the order to follow.
            deltas: the step's deltas by relation name; None for one too large for the driver.
            arrangements: by relation name.
            as_of: the time to read the arrangements at, the last before the step.
            upper: where the step ends.
            driver: evaluates keys.
            more: how many first rows of a key to read beyond those needed, for all arrangements or by name; None:
                read keys whole.
            settings: bounds that override the arrangements' own.
        """
        self._more = more
        self._settings = settings
        self._deltas = deltas
        self._as_of = as_of
        self._upper = upper
        self._driver = driver
        self._stats = ReadStats()
        self._states = {
            lookup.arrangement: _State(
                lookup,
                arrangements[lookup.arrangement],
                as_of,
            )
            for lookup in lookups
        }

    def run(self) -> Found:
        """Look up until a pass finds no new keys; return the relations."""
        # Keys come from updates and from rows that were found, so an arrangement may learn of new keys after it was
        # looked at. It ends: each pass finds a key that was not looked up before, and there are finitely many.
        moved = True
        while moved:
            moved = False
            for state in self._states.values():
                moved |= self._pass(state)
        tables: dict[str, pa.Table] = {}
        pushed: dict[str, Pushed] = {}
        for name, state in self._states.items():
            if state.pushed:
                pushed[name] = Pushed(state.arrangement, state.parts, self._push_ranges(state))
                self._stats.bytes += sum(part.bytes for part in state.parts)
            elif state.pieces:
                tables[name] = pa.concat_tables(state.pieces)
            else:
                tables[name] = state.arrangement.rows(no_updates(state.arrangement.schema))
        firsts = {n: one.firsts for n, one in self._states.items() if one.firsts is not None}
        return Found(tables, pushed, self._stats, firsts)

    def _pass(self, state: _State) -> bool:
        """Look up the keys that an arrangement's sources have and that were not looked up before; return whether there
        were any.
        """
        if state.whole:
            return False
        if state.lookup.due:
            self._take_due(state)
            return True
        sources = state.lookup.sources
        if sources == ():
            return False
        if state.arrangement.desc.key_arity == 0 and self._find_first_of_all(state):
            return True
        # By as many leading columns as every source has: what is found covers the keys of each.
        arity = min(len(source.exprs) for source in sources) if sources else 0
        if sources is None or arity == 0:
            self._take_all(state)
            return True
        new: list[pa.Table] = []
        for position, source in enumerate(sources):
            known = self._relation(source.relation)
            if known is None:
                self._take_all(state)
                return True
            generation, tables = known
            last, count = state.looked.get(position, (generation, 0))
            # Pieces are only ever added, so those counted before were asked for already; of another generation none
            # were.
            seen = count if last == generation else 0
            state.looked[position] = (generation, len(tables))
            new += [self._keys(source, arity, table) for table in tables[seen:] if table.num_rows]
        if not new:
            return False
        schema = pa.schema(
            [pa.field(f"k{i}", state.arrangement.schema.field(i).type) for i in range(arity)]
        )
        keys = pa.concat_tables([table.cast(schema) for table in new])
        cold = self._first_cold(state, keys)
        if cold is not None:
            return cold
        trace = state.arrangement.trace(self._as_of)
        if trace is not None:
            return self._find(state, trace, keys)
        # Otherwise all keys are new, and reading by ranges does not mind a key that comes twice.
        if len(new) > 1 or state.keys is not None:
            keys = self._unseen(keys, state.keys)
        if keys.num_rows == 0:
            return False
        state.keys = keys if state.keys is None else pa.concat_tables([state.keys, keys])
        if not state.pushed:
            self._read(state, keys)
        return True

    def _find(self, state: _State, trace: Trace, keys: pa.Table) -> bool:
        """Look new keys up in a trace; return whether there were any."""
        arrangement = state.arrangement
        hashes = arrangement.hashes(keys)
        if state.hashes is not None:
            hashes = without(hashes, state.hashes)
        if not len(hashes):
            return False
        state.hashes = hashes if state.hashes is None else together(state.hashes, hashes)
        state.keys = keys if state.keys is None else pa.concat_tables([state.keys, keys])
        if not state.pushed and not self._first(state, trace, hashes, keys.num_columns):
            with arrangement.hot.reading():
                found = trace.find(hashes, keys.num_columns, self._as_of)
            self._take(state, found)
        return True

    def _spare(self, state: _State) -> int | None:
        """How many first rows of a key to read beyond those that its fronts need; None: read keys whole."""
        if not state.lookup.fronts:
            return None
        more = self._more
        return more.get(state.lookup.arrangement, 0) if isinstance(more, Mapping) else more

    def _first_cold(self, state: _State, keys: pa.Table | None) -> bool | None:
        """Read the first rows of keys (`keys` None: the arrangement has no key columns) from the shard.

        Returns:
            Whether any key was new; None if this is not the way to read them.
        """
        arrangement, more = state.arrangement, self._spare(state)
        whole_keys = keys is None or keys.num_columns == arrangement.desc.key_arity
        if more is None or not whole_keys or state.pushed:
            return None
        if not reads_cold(arrangement, self._as_of):
            return None
        asked = None if keys is None else self._unseen(keys, state.keys)
        if asked is not None and asked.num_rows > COLD_KEYS:
            return None
        read = []
        try:
            values = [()] if asked is None else [tuple(row.values()) for row in asked.to_pylist()]
            for key in values:
                fronts = state.lookup.fronts
                one = first_from_shard(arrangement, key, self._as_of, fronts, more, self._stats)
                if one is None:
                    return None
                read.append(one)
        except (OverflowError, ValueError):  # a date or time that Python cannot represent
            return None
        # In the order of the keys, since what was read stands in that order; `state.hashes` below is sorted, as
        # lookups in traces expect it.
        hashes = _NO_KEY if asked is None else arrangement.hashes_in_order(asked)
        if state.firsts is None:
            state.firsts = Firsts(arrangement, state.lookup.fronts)
        for number, one in enumerate(read):
            state.firsts.add_one(hashes[number : number + 1], one.counts, whole=one.whole)
            if one.rows.num_rows:
                state.pieces.append(arrangement.rows(one.rows))
        if asked is not None:
            state.keys = asked if state.keys is None else pa.concat_tables([state.keys, asked])
            known = np.sort(hashes)
            state.hashes = known if state.hashes is None else together(state.hashes, known)
        return asked is None or asked.num_rows > 0

    def _find_first_of_all(self, state: _State) -> bool:
        """Read the first rows of an arrangement without key columns, which is one group; return whether that was done."""
        if self._first_cold(state, None):
            state.whole = True
            return True
        trace = state.arrangement.trace(self._as_of) if state.lookup.fronts else None
        if trace is None or state.pushed or not self._first(state, trace, _NO_KEY, 0):
            return False
        state.whole = True
        return True

    def _first(self, state: _State, trace: Trace, hashes: Hashes, arity: int) -> bool:
        """Take the first rows of keys from the trace; return False if they have to be read whole."""
        arrangement, more = state.arrangement, self._spare(state)
        fronts = state.lookup.fronts
        if more is None or trace.order is None or arity != arrangement.desc.key_arity:
            return False
        with arrangement.hot.reading():
            found = [
                trace.first(hashes, self._as_of, one.count + more, back=one.back) for one in fronts
            ]
        rows = functools.reduce(TraceRows.joined, (one.found for one in found))
        self._stats.rows += sum(one.looked for one in found)
        if state.firsts is None:
            state.firsts = Firsts(arrangement, fronts)
        state.firsts.add(hashes, found)
        self._take(state, rows)
        return True

    def _take(self, state: _State, found: TraceRows) -> None:
        """Take rows found in a trace; too many for the driver are left to Spark."""
        arrangement = state.arrangement
        # What was found before may go: those rows are among the ones that Spark will read.
        if not found.count:
            return
        if found.count > arrangement.most_rows(self._settings):
            state.pushed, state.pieces = True, []
        else:
            state.pieces.append(arrangement.rows(found.rows()))

    def _relation(self, name: str) -> tuple[int, list[pa.Table]] | None:
        """A relation's generation and the pieces it came in so far; None if it is not on the driver."""
        if name in self._states:
            state = self._states[name]
            return None if state.pushed else (state.generation, state.pieces)
        table = self._deltas[name]
        return None if table is None else (0, [table])

    def _keys(self, source: KeySource, arity: int, table: pa.Table) -> pa.Table:
        plain = source.columns(arity)
        if plain is not None:
            return table.select(plain).rename_columns([f"k{i}" for i in range(arity)])
        return self._driver.simple(source.keys(arity), {source.relation: table})

    def _unseen(self, keys: pa.Table, seen: pa.Table | None) -> pa.Table:
        select = exp.select("*").from_("new_keys").distinct()
        if seen is None:
            return self._driver.query(select, {"new_keys": keys})
        both = exp.except_(select, exp.select("*").from_("seen_keys"))
        return self._driver.query(both, {"new_keys": keys, "seen_keys": seen})

    def _take_all(self, state: _State) -> None:
        # All rows are enough rows of every key, so there is nothing to check after the step.
        state.whole, state.firsts = True, None
        trace = state.arrangement.trace(self._as_of)
        if trace is not None and not state.pushed:
            state.pieces, state.generation = [], state.generation + 1
            with state.arrangement.hot.reading():
                found = trace.all(self._as_of)
            self._take(state, found)
            if state.pushed:
                state.keys = None
            return
        if not state.arrangement.fits_driver(state.parts, None, self._settings):
            state.pushed, state.keys, state.pieces = True, None, []
        elif not state.pushed:
            state.pieces = [
                state.arrangement.rows(state.arrangement.read(self._as_of, stats=self._stats))
            ]
            state.generation += 1

    def _take_due(self, state: _State) -> None:
        """Take the temporal events that fall into the step, whatever the deltas are."""
        state.whole = True
        ranges = self._due_range()
        trace = state.arrangement.trace(self._as_of)
        if trace is not None:
            state.generation += 1
            with state.arrangement.hot.reading():
                found = trace.between(self._as_of + 1, self._upper - 1, self._as_of)
            self._take(state, found)
            return
        if not state.arrangement.fits_driver(state.parts, ranges, self._settings):
            state.pushed = True
            return
        read = state.arrangement.read(self._as_of, key_ranges=ranges, stats=self._stats)
        state.pieces = [state.arrangement.rows(read)]
        state.generation += 1

    def _due_range(self) -> list[KeyRange]:
        return [(self._as_of + 1, self._upper - 1)]

    def _read(self, state: _State, keys: pa.Table) -> None:
        arrangement = state.arrangement
        if not arrangement.fits_driver(state.parts, _ranges(keys), self._settings):
            state.pushed, state.pieces = True, []
            return
        for workers, some in self._by_worker(arrangement, keys):
            ranges = _ranges(some)
            found = arrangement.read(
                self._as_of, key_ranges=ranges, workers=workers, stats=self._stats
            )
            rows = arrangement.rows(found)
            exact = (
                some.num_columns == 1 and ranges is not None and all(lo == hi for lo, hi in ranges)
            )
            if rows.num_rows and not exact:
                rows = self._semi_join(rows, some)
            if rows.num_rows:
                state.pieces.append(rows)

    def _by_worker(
        self, arrangement: Arrangement, keys: pa.Table
    ) -> list[tuple[list[int] | None, pa.Table]]:
        """Divide whole keys by worker if they are so few that reading only their workers' parts saves work; otherwise
        all keys for all workers.
        """
        whole = keys.num_columns == arrangement.desc.key_arity
        if not whole or arrangement.workers == 1 or not _points(keys):
            return [(None, keys)]
        worker = exp.alias_(arrangement.worker_ast(Engine.DUCKDB, "k"), "w", quoted=True)
        select = exp.select("*").select(worker).from_("lookup_keys")
        of_worker = self._driver.query(select, {"lookup_keys": keys})
        workers: list[int] = sorted(pc.unique(of_worker.column("w")).to_pylist())
        return [
            (
                [worker],
                of_worker.filter(pc.equal(of_worker.column("w"), worker)).drop_columns(["w"]),
            )
            for worker in workers
        ]

    def _semi_join(self, rows: pa.Table, keys: pa.Table) -> pa.Table:
        same = exp.and_(
            *(
                exp.NullSafeEQ(
                    this=exp.column(f"k{i}", "lookup_keys", quoted=True),
                    expression=exp.column(f"c{i}", "state_rows", quoted=True),
                )
                for i in range(keys.num_columns)
            )
        )
        select = (
            exp.select("*")
            .from_("state_rows")
            .where(exp.Exists(this=exp.select("1").from_("lookup_keys").where(same)))
        )
        return self._driver.query(select, {"state_rows": rows, "lookup_keys": keys}).cast(
            rows.schema
        )

    def _push_ranges(self, state: _State) -> list[KeyRange] | None:
        if state.lookup.due:
            return self._due_range()
        if state.keys is None or not rangeable(state.keys.schema.field(0).type):
            return None
        rows = sum(part.rows for part in state.parts)
        if state.keys.num_rows > PUSHED_RANGES and state.keys.num_rows * _ROWS_A_PAGE > rows:
            return None
        return merge_ranges(state.keys.column(0))


def _points(keys: pa.Table) -> bool:
    """Whether the keys are few enough for each to be a range of its own."""
    return bool(keys.num_rows <= _POINTS)


def _ranges(keys: pa.Table) -> list[KeyRange] | None:
    """The ranges of the first key column that cover the keys; None if its type has no order to find them by."""
    if not rangeable(keys.schema.field(0).type):
        return None
    return merge_ranges(keys.column(0), _POINTS if _points(keys) else PUSHED_RANGES)
