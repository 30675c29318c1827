"""Which worker has each row of an arrangement, found in this process.

Promise: what `workers_of` tells is what `mzsql.render.worker` says of the key. Of keys that are one integer, which most are, it is looked
up in a table of the integers up to `MOST`, a byte each, of which a stretch is made when enough rows ask for it: the hash is one of a
text, which takes DuckDB a hundred times as long. Of all others DuckDB tells it, as statements do.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import expressions as exp

from mzsql.expr.engines import to_sql
from mzsql.expr.functions.table import Engine, Sql
from mzsql.persist import WORKER_COLUMN
from mzsql.render.worker import INTEGERS, worker_of
from mzsql.repr.types import BIGINT, SqlType

Workers = npt.NDArray[np.integer]
#: Runs a statement over relations.
Ask = Callable[[str, Mapping[str, pa.Table]], pa.Table]

#: Integers from 0 to here have a place in a table.
MOST = 1 << 24
#: So many of them at least are asked for at once: the first ones always, as most keys of few rows are among them,
_STRETCH = 1 << 12
#: and others where they are at most so many times as many as the rows that are to be looked up.
_WORTH = 4
#: Workers of so many integers at most are asked for at once.
_SPAN = 1 << 20
#: What no worker is.
_UNKNOWN = 255
#: So many statements that tell workers of keys are kept, each for keys of some types.
_TEXTS = 512


def workers_of(keys: pa.Table, types: Sequence[SqlType], workers: int, ask: Ask) -> Workers:
    """The worker of each key.

    Args:
        keys: the key's columns, c0 …, with rows.
        types: theirs.
        workers: how many there are.
        ask: runs what DuckDB is asked.
    """
    if len(types) == 1:
        found = _of_integers(keys.column(0), types[0], workers, ask)
        if found is not None:
            return found
    return _asked(keys, types, workers, ask)


def _asked(keys: pa.Table, types: Sequence[SqlType], workers: int, ask: Ask) -> Workers:
    places = pa.array(np.arange(keys.num_rows))
    found = ask(_text(tuple(types), workers), {"batch": keys.append_column("mz_place", places)})
    made = np.empty(keys.num_rows, np.int32)
    made[found.column("mz_place").to_numpy()] = found.column(WORKER_COLUMN).to_numpy()
    return made


@functools.lru_cache(_TEXTS)
def _text(types: tuple[SqlType, ...], workers: int) -> str:
    """The worker of each row of a batch of keys, which are told by their places: DuckDB keeps no order.

    Arrangements are many, the types of their keys few.
    """
    worker = exp.alias_(worker_ast(types, workers, Engine.DUCKDB), WORKER_COLUMN, quoted=True)
    place = exp.column("mz_place", quoted=True)
    return to_sql(exp.select(place, worker).from_(exp.to_table("batch")), Engine.DUCKDB)


def worker_ast(
    types: Sequence[SqlType], workers: int, engine: Engine, prefix: str = "c"
) -> exp.Expression:
    """The worker of a row by its key, whose columns c0, c1, … (or as `prefix` calls them) have these types."""
    keys = [Sql(exp.column(f"{prefix}{i}", quoted=True), typ) for i, typ in enumerate(types)]
    worker: exp.Expression = worker_of(keys, workers, engine)
    return worker


def _of_integers(column: pa.ChunkedArray, typ: SqlType, workers: int, ask: Ask) -> Workers | None:
    if typ.kind not in INTEGERS or not pa.types.is_integer(column.type) or workers >= _UNKNOWN:
        return None
    nulls = column.null_count
    if nulls == len(column):
        return None
    found = _table(workers).of((pc.fill_null(column, 0) if nulls else column).to_numpy(), ask)
    if found is None or not nulls:
        return found
    of_null = pa.table({"c0": pa.nulls(1, column.type)})
    found[pc.is_null(column).to_numpy()] = _asked(of_null, (typ,), workers, ask)[0]
    return found


class _Table:
    """The workers of integers. Thread-safe.

    Args:
        workers: how many there are.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._lock = threading.Lock()
        self._known = np.empty(0, np.uint8)

    def of(self, keys: npt.NDArray[np.integer], ask: Ask) -> npt.NDArray[np.uint8] | None:
        """The worker of each; None where some have no place here, or too few ask for too much that is not known yet."""
        if not 0 <= int(keys.min()) <= (greatest := int(keys.max())) < MOST:
            return None
        keys = keys.astype(np.int64, copy=False)
        known = self._known
        made: npt.NDArray[np.uint8]
        if greatest < len(known):
            made = known[keys]
            if not np.any(made == _UNKNOWN):
                return made
        with self._lock:
            stretches = np.zeros(greatest // _STRETCH + 1, np.bool_)
            stretches[keys // _STRETCH] = True
            missing = [int(at) for at in np.flatnonzero(stretches) if self._lacks(int(at))]
            if missing != [0] and len(missing) * _STRETCH > _WORTH * len(keys):
                return None
            if missing:
                self._make(missing, len(stretches) * _STRETCH, ask)
            made = self._known[keys]
        return made

    def _lacks(self, stretch: int) -> bool:
        begin = stretch * _STRETCH
        return begin >= len(self._known) or bool(self._known[begin] == _UNKNOWN)

    def _make(self, stretches: Sequence[int], least: int, ask: Ask) -> None:
        made = self._known.copy()
        if least > len(made):
            more = np.full(min(max(least, 2 * len(made)), MOST) - len(made), _UNKNOWN, np.uint8)
            made = np.concatenate([made, more])
        for begin, end in _spans(stretches):
            keys = pa.table({"c0": np.arange(begin, end)})
            made[begin:end] = _asked(keys, (BIGINT,), self._workers, ask)
        # Whoever reads has the whole table from before, or this one.
        self._known = made


def _spans(stretches: Sequence[int]) -> list[tuple[int, int]]:
    """The integers of stretches, of those beside each other as one span of `_SPAN` at most."""
    spans: list[tuple[int, int]] = []
    for at in stretches:
        begin, end = at * _STRETCH, (at + 1) * _STRETCH
        if spans and spans[-1][1] == begin and end - spans[-1][0] <= _SPAN:
            begin, _ = spans.pop()
        spans.append((begin, end))
    return spans


@functools.lru_cache(16)
def _table(workers: int) -> _Table:
    return _Table(workers)
