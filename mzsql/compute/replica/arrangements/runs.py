"""Sorted runs of updates, and the hashes of keys by which they are sorted.

Promise: `key_hashes` gives equal keys the same 64-bit hash, for all types and NULL, and spreads hashes evenly. A
`Run` finds the rows of keys by their hashes in two binary searches. A run never changes.

Values of fixed width and texts are hashed here; values of other types by DuckDB, whose hash may change between
releases. So runs that are stored longer than the process are only valid for the DuckDB release that made them.
Source: interpolation search (Perl, Itai, Avni, "Interpolation search - a log log N search", CACM 21, 1978), with a few
interpolations followed by a search nearby.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mzsql.persist.consolidate import floats_as_bits
from mzsql.repr.frontier import Timestamp

Hashes = npt.NDArray[np.uint64]
Places = npt.NDArray[np.int64]

#: Computes DuckDB's hash of the single column c0 of a table, in the table's order, for types without a fixed width.
Hasher = Callable[[pa.Table], Hashes]

_NULL = np.uint64(0x9E3779B97F4A7C15)
_M1, _M2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
#: Masks for the first n bytes of a word.
_FIRST_BYTES = np.array([(1 << 8 * n) - 1 for n in range(9)], np.uint64)


def _mixed(values: Hashes) -> Hashes:
    """Splitmix64's finalizer (Steele, Lea, Flood 2014): a bijection that spreads bits."""
    with np.errstate(over="ignore"):
        made = values + _GOLDEN
        made ^= made >> np.uint64(30)
        made *= _M1
        made ^= made >> np.uint64(27)
        made *= _M2
        made ^= made >> np.uint64(31)
    return made


def key_hashes(keys: pa.Table, hasher: Hasher) -> Hashes:
    """A 64-bit hash of each row, equal for rows that are equal (NULL equal to NULL), in tables of the same column
    types.
    """
    made: Hashes | None = None
    for name, column in zip(keys.column_names, keys.columns, strict=True):
        one = _column_hashes(name, column, hasher)
        made = one if made is None else _mixed(made ^ (one + _GOLDEN))
    assert made is not None
    return made


def distinct(hashes: Hashes) -> Hashes:
    """The distinct hashes, sorted."""
    # NumPy's unique hashes its input first, which takes several times as long as sorting. Rows of one key mostly come
    # together, and what was found in a run comes in the order of hashes, so most of the sorting is done already.
    made = _changing(hashes)
    turns = int(np.count_nonzero(made[1:] < made[:-1]))
    if not turns:
        return made
    stretches = turns < len(made) // _A_STRETCH
    return _changing(np.sort(made, kind="stable" if stretches else None))


#: From this average length on, in hashes, sorted stretches are merged by a stable sort; for shorter ones a full sort is
#: faster.
_A_STRETCH = 8


def _changing(hashes: Hashes) -> Hashes:
    """The hashes without those equal to the one before."""
    keep = np.ones(len(hashes), np.bool_)
    keep[1:] = hashes[1:] != hashes[:-1]
    return hashes[keep]


def in_order(hashes: Hashes) -> tuple[Places, Hashes]:
    """The places of hashes in their order, equal ones as they come, and the hashes in that order."""
    turns = int(np.count_nonzero(hashes[1:] < hashes[:-1]))
    if turns < len(hashes) // _A_STRETCH:
        places = np.argsort(hashes, kind="stable")
        return places, hashes[places]
    # Numbers are sorted faster than places by them; so the place takes the end of each hash, which hardly ever decides.
    mask = np.uint64((1 << len(hashes).bit_length()) - 1)
    packed = (hashes & ~mask) | np.arange(len(hashes), dtype=np.uint64)
    packed.sort()
    places = (packed & mask).astype(np.int64)
    made = hashes[places]
    if np.any(made[1:] < made[:-1]):
        again = np.argsort(made, kind="stable")
        places, made = places[again], made[again]
    return places, made


#: `repeated` counts by at most so many bits of a hash, with 8 bytes for each count.
_MOST_BITS = 22


def repeated(hashes: Hashes) -> npt.NDArray[np.bool_]:
    """Which hashes occur more than once."""
    # Counting by some of their bits first excludes most hashes, at a fraction of the cost of sorting all.
    bits = min(max(len(hashes).bit_length() + 3, 8), _MOST_BITS)
    slots = (hashes >> np.uint64(64 - bits)).astype(np.int64)
    maybe = np.flatnonzero(np.bincount(slots)[slots] > 1)
    some = hashes[maybe]
    ordered = np.sort(some)
    again = distinct(ordered[1:][ordered[1:] == ordered[:-1]])
    made = np.zeros(len(hashes), np.bool_)
    if len(again):
        at = np.minimum(np.searchsorted(again, some), len(again) - 1)
        made[maybe] = again[at] == some
    return made


def together(some: Hashes, others: Hashes) -> Hashes:
    """The hashes that are in either, each once, sorted."""
    return distinct(np.concatenate([some, others]))


def without(hashes: Hashes, known: Hashes) -> Hashes:
    """The hashes that are not in `known`; both are sorted and without duplicates."""
    if not len(known):
        return hashes
    at = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
    new: Hashes = hashes[known[at] != hashes]
    return new


def _column_hashes(name: str, column: pa.ChunkedArray, hasher: Hasher) -> Hashes:
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):  # of no chunks, or too large for one
        parts = [_column_hashes(name, pa.chunked_array([one]), hasher) for one in array.chunks]
        return np.concatenate([np.empty(0, np.uint64), *parts])
    bits = _text_bits(array) if pa.types.is_string(array.type) else _bits(array)
    if bits is None:
        return _mixed(hasher(pa.table({"c0": array})))
    made = _mixed(bits)
    if array.null_count:
        made[array.is_null().to_numpy(zero_copy_only=False)] = _NULL
    return made


def _bits(array: pa.Array) -> Hashes | None:
    """A number for each value, the same for equal values; None for a type without a fixed width. The numbers of NULLs
    are meaningless.
    """
    typ = array.type
    if pa.types.is_boolean(typ):
        array = array.cast(pa.int8())
    elif pa.types.is_floating(typ) and typ.bit_width >= 32:
        array = floats_as_bits(pa.table({"c0": array}))["c0"].combine_chunks()
        typ = array.type
    elif pa.types.is_decimal128(typ):
        data = array.buffers()[1]
        if data is None:
            return np.zeros(len(array), np.uint64)
        words = np.frombuffer(data, np.uint64)[2 * array.offset : 2 * (array.offset + len(array))]
        made: Hashes = words[::2] ^ _mixed(words[1::2].copy())
        return made
    elif not (pa.types.is_integer(typ) or pa.types.is_date32(typ) or pa.types.is_timestamp(typ)):
        return None
    if pa.types.is_date32(typ):
        array = array.view(pa.int32())
    elif pa.types.is_timestamp(typ):
        array = array.view(pa.int64())
    filled = array.fill_null(0) if array.null_count else array
    values = filled.to_numpy(zero_copy_only=False)
    numbers: Hashes = (
        values.copy() if values.dtype == np.uint64 else values.astype(np.int64).view(np.uint64)
    )
    return numbers


def _text_bits(array: pa.Array) -> Hashes:
    """As `_bits`, for texts: hashes of their length and of their bytes, eight at a time."""
    count = len(array)
    _, places, data = array.buffers()
    if data is None or not count:
        return np.zeros(count, np.uint64)
    bounds = np.frombuffer(places, np.int32)[array.offset : array.offset + count + 1]
    first, last = int(bounds[0]), int(bounds[-1])
    # Words are read at every byte offset, so eight bytes of padding follow the last one.
    padded = np.zeros(last - first + 8, np.uint8)
    padded[: last - first] = np.frombuffer(data, np.uint8)[first:last]
    words = np.ndarray(last - first + 1, "<u8", padded, strides=(1,))
    starts, lengths = bounds[:-1].astype(np.int64) - first, np.diff(bounds).astype(np.int64)
    made = _mixed(lengths.astype(np.uint64))
    at = 0
    longer = np.flatnonzero(lengths > 0)
    while len(longer):
        left = lengths[longer] - at
        word = words[starts[longer] + at].astype(np.uint64)
        word &= _FIRST_BYTES[np.minimum(left, 8)]
        made[longer] = _mixed(made[longer] ^ word)
        at += 8
        longer = longer[left > 8]
    return made


#: From this many rows of a run and this many keys on, keys are found by interpolation: such a run is not in the CPU's
#: caches, and a binary search would touch many of its pages.
_LONG_RUN, _MANY_KEYS = 1_000_000, 1_000
#: How far from its interpolated place a key is searched for.
_NEAR = 64


def _begins(hashes: Hashes, keys: Hashes) -> Places:
    """For each key the place of the first hash that is not less; as `numpy.searchsorted`. Both arguments are sorted.

    Hashes are spread evenly, so a key's place can be interpolated, better with each look at the hashes there.
    """
    count = len(hashes)
    if count < _LONG_RUN or len(keys) < _MANY_KEYS:
        return hashes.searchsorted(keys)
    density, wanted = count / 2.0**64, keys.astype(np.float64)
    at = np.clip((wanted * density).astype(np.int64), 0, count - 1)
    for _ in range(2):
        off = (wanted - hashes[at].astype(np.float64)) * density
        at = np.clip(at + off.astype(np.int64), 0, count - 1)
    low, high = np.maximum(at - _NEAR, 0), np.minimum(at + _NEAR, count)
    below = (low == 0) | (hashes[low - 1] < keys)
    near = below & ((high == count) | (hashes[np.minimum(high, count - 1)] >= keys))
    at, step = low, 2 * _NEAR
    while step:
        beyond = at + step
        less = (beyond <= count) & (hashes[np.minimum(beyond, count) - 1] < keys)
        at = np.where(less, beyond, at)
        step //= 2
    # Many rows with one key displace all others; keys not found nearby are searched for in the whole run.
    far = np.flatnonzero(~near)
    at[far] = np.searchsorted(hashes, keys[far])
    return at


#: The ends of so many keys' rows are searched for at once, which takes less than a look at what lies beside each.
_FEW_KEYS = 32
#: The end of a key's rows is searched for only if it has more rows than this.
_BESIDE = 8


def _ends(hashes: Hashes, keys: Hashes, begin: Places) -> Places:
    """For each key the end of the stretch of its hash that begins at `begin` (empty if it has no rows).

    Most keys have few rows or none, which lie next to the place just found, so looking there is much cheaper than
    another search.
    """
    if len(keys) <= _FEW_KEYS:
        return hashes.searchsorted(keys, "right")
    ends = begin.copy()
    open_, wanted = np.arange(len(keys)), keys
    for _ in range(_BESIDE):
        at = ends[open_]
        inside = at < len(hashes)
        more = inside & (hashes[np.where(inside, at, 0)] == wanted) if len(hashes) else inside
        open_, wanted = open_[more], wanted[more]
        if not len(open_):
            return ends
        ends[open_] += 1
    ends[open_] = np.searchsorted(hashes, wanted, "right")
    return ends


#: Of runs of up to so many rows, of which many keys are asked, it is looked first which keys they may have at all: the runs
#: of the latest steps mostly have none of those that the next step looks up.
_SIEVED_ROWS, _SIEVED_KEYS = 1 << 17, 256


def _sieve(hashes: Hashes) -> npt.NDArray[np.bool_]:
    """By the first bits of a hash whether any of these begins so; of other hashes one in eight or fewer does."""
    bits = len(hashes).bit_length() + 3
    made = np.zeros(1 << bits, np.bool_)
    made[(hashes >> np.uint64(64 - bits)).astype(np.int64)] = True
    return made


class Run:
    """Updates sorted by the hash of their first `arity` columns. Lookups by fewer columns use further indexes, made
    when they are needed.
    """

    def __init__(
        self, rows: pa.RecordBatch, arity: int, hashes: Hashes, times: tuple[Timestamp, Timestamp]
    ) -> None:
        self.rows = rows
        self.arity = arity
        self.hashes = hashes
        self.first, self.last = times
        #: whether different keys have one hash; determined only for runs with an order
        self.mixed = False
        #: whether it is memory-mapped from files
        self.mapped = False
        self.bytes = int(rows.nbytes + hashes.nbytes)
        self._others: dict[int, tuple[Hashes, npt.NDArray[np.int64]]] = {}
        self._sieves: dict[int, npt.NDArray[np.bool_]] = {}

    def places(
        self, keys: Hashes, arity: int, hasher: Hasher
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64] | None]:
        """For each key the places at which its rows begin and end in the index, and the index's order (None: the run's
        own).
        """
        hashes, order = self.hashes, None
        if arity != self.arity:
            hashes, order = self._by(arity, hasher)
        some = self._sifted(hashes, keys, arity)
        if some is None:
            begin = _begins(hashes, keys)
            return begin, _ends(hashes, keys, begin), order
        begins, ends = np.zeros(len(keys), np.int64), np.zeros(len(keys), np.int64)
        if len(some):
            wanted = keys[some]
            begin = _begins(hashes, wanted)
            begins[some], ends[some] = begin, _ends(hashes, wanted, begin)
        return begins, ends, order

    def _sifted(self, hashes: Hashes, keys: Hashes, arity: int) -> Places | None:
        """The numbers of the keys that may be there; None where it is not worth asking."""
        if len(keys) < _SIEVED_KEYS or not 0 < len(hashes) <= _SIEVED_ROWS:
            return None
        sieve = self._sieves.get(arity)
        if sieve is None:
            sieve = self._sieves[arity] = _sieve(hashes)
        bits = len(sieve).bit_length() - 1
        some = np.flatnonzero(sieve[(keys >> np.uint64(64 - bits)).astype(np.int64)])
        return some if 2 * len(some) < len(keys) else None

    def _by(self, arity: int, hasher: Hasher) -> tuple[Hashes, npt.NDArray[np.int64]]:
        known = self._others.get(arity)
        if known is None:
            keys = pa.Table.from_batches([self.rows.select(list(range(arity)))])
            hashes = key_hashes(keys, hasher)
            order, hashes = in_order(hashes)
            known = self._others[arity] = hashes, order
        return known


class Files(Protocol):
    """Stores large runs in files."""

    def put(self, run: Run, /) -> Run:
        """Store a run; return it memory-mapped.

        Raises:
            OSError: the files cannot be written.
        """
