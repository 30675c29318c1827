"""Cases of PostgreSQL: the Consensus and the oracle against psycopg issuing the bare statement."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from figures import Case
from servers import Bare, schema
from turns import Step, Times, in_turns

from mzsql.location import Versioned, open_consensus, open_oracle

SIZES = {"100 B": 100, "1 KiB": 1024, "64 KiB": 64 * 1024}
THREADS = (1, 8)
SCAN = 100
_OURS, _BARE, _SAME = "mzsql", "bare", "same"
_INSERT = "INSERT INTO {schema}.bare (shard, sequence_number, data) VALUES (%s, %s, %s)"
_SAME_STATEMENT = (
    "INSERT INTO {consensus} (shard, sequence_number, data) SELECT shard, %s, %s FROM {consensus}"
    " WHERE shard = %s AND sequence_number = %s FOR KEY SHARE ON CONFLICT DO NOTHING"
)


@contextmanager
def _bares(url: str, number: int) -> Iterator[list[Bare]]:
    with ExitStack() as stack:
        found = []
        for _ in range(number):
            found.append(Bare(url))
            stack.callback(found[-1].close)
        yield found


def _line(case: Case, what: str, threads: int, found: dict[str, Times]) -> None:
    ours, bare, same = found[_OURS], found[_BARE], found.get(_SAME)
    case.row(
        what=what,
        threads=threads,
        p50_ms=ours.p50 * 1000,
        bare_p50_ms=bare.p50 * 1000,
        p50_over_bare=ours.p50_over(bare),
        p99_ms=ours.p99 * 1000,
        bare_p99_ms=bare.p99 * 1000,
        p99_over_bare=ours.p99_over(bare),
        per_s=ours.rate,
        bare_per_s=bare.rate,
        p50_over_psycopg_with_our_statement=None if same is None else ours.p50_over(same),
    )


def _data(size: int) -> bytes:
    return random.Random(size).randbytes(size)


def _sets(consensus: Any, data: bytes, key: str) -> Step:
    """A compare-and-set of the next entry of a key."""
    assert consensus.compare_and_set(key, None, Versioned(0, data))
    seqnos = itertools.count()

    def step() -> None:
        before = next(seqnos)
        if not consensus.compare_and_set(key, before, Versioned(before + 1, data)):
            raise SystemExit(f"a compare-and-set of {key} was lost, though nobody else writes it")

    return step


def _inserts(bare: Bare, data: bytes, key: str) -> Step:
    statement, seqnos = bare.text(_INSERT), itertools.count()

    def step() -> None:
        bare.execute(statement, (key, next(seqnos), data), prepare=True)

    return step


def _same_statement(bare: Bare, data: bytes, key: str) -> Step:
    statement, seqnos = bare.text(_SAME_STATEMENT), itertools.count()
    first = bare.text("INSERT INTO {consensus} VALUES (%s, %s, %s)")
    bare.execute(first, (key, 0, data))

    def step() -> None:
        before = next(seqnos)
        bare.execute(statement, (before + 1, data, key, before), prepare=True)
        assert bare.cursor.rowcount == 1

    return step


def consensus(url: str, *, quick: bool) -> Case:
    """Case a."""
    case = Case("a", "Consensus on PostgreSQL; psycopg with the bare INSERT or SELECT")
    size, rounds = (20, 4) if quick else (100, 20)
    with schema(url) as mine, _bares(mine, max(THREADS)) as bares:
        opened: Any = open_consensus(mine)
        try:
            first = bares[0]
            first.execute(first.text("CREATE TABLE {schema}.bare (LIKE {consensus} INCLUDING ALL)"))
            for name, bytes_ in SIZES.items():
                data = _data(bytes_)
                for threads in THREADS:
                    some = bares[:threads]
                    keys = [f"s{name}-{threads}-{number}" for number in range(threads)]
                    pairs = list(zip(some, keys, strict=True))
                    contenders = {
                        _OURS: [_sets(opened, data, key) for key in keys],
                        _BARE: [_inserts(bare, data, key) for bare, key in pairs],
                        _SAME: [_same_statement(bare, data, f"same-{key}") for bare, key in pairs],
                    }
                    # Long values fill the disk.
                    some_rounds = rounds if bytes_ < 10_000 else rounds // 2
                    found = in_turns(contenders, size=max(5, size // threads), rounds=some_rounds)
                    _line(case, f"compare_and_set of {name}", threads, found)
                    if threads == 1:
                        ratio = found[_OURS].p50_over(found[_BARE])
                        case.target(f"compare_and_set of {name} : INSERT, p50", ratio, most=1.5)
                        ratio = found[_OURS].p99_over(found[_BARE])
                        case.target(f"compare_and_set of {name} : INSERT, p99", ratio, most=1.5)
            _reads(case, opened, bares, size, rounds)
        finally:
            opened.close()
    case.notes.append(
        "The bare INSERT goes into a table like ours (same primary key), on its own connection with the same settings, autocommit, "
        "prepared, parameters in binary; both wait for the disk. The last column: psycopg issuing the very statement we do, without a "
        "notification of followers, which is ours alone."
    )
    return case


def _reads(case: Case, opened: Any, bares: list[Bare], size: int, rounds: int) -> None:
    key, data = "s-read", _data(1024)
    step = _sets(opened, data, key)
    for _ in range(SCAN - 1):
        step()
    statements = {
        "head": "SELECT sequence_number, data FROM {consensus} WHERE shard = %s ORDER BY sequence_number DESC LIMIT 1",
        f"scan of {SCAN}": "SELECT sequence_number, data FROM {consensus} WHERE shard = %s AND sequence_number >= 0"
        f" ORDER BY sequence_number LIMIT {SCAN}",
    }

    def ours(what: str) -> Callable[[], object]:
        def scan() -> None:
            assert len(opened.scan(key, 0, SCAN)) == SCAN

        return scan if what != "head" else lambda: opened.head(key)

    def theirs(bare: Bare, what: str) -> Callable[[], object]:
        statement = bare.text(statements[what])

        def select() -> None:
            bare.execute(statement, (key,), prepare=True)
            assert len(bare.cursor.fetchall()) == (1 if what == "head" else SCAN)

        return select

    for what in statements:
        for threads in THREADS:
            contenders = {
                _OURS: [ours(what)] * threads,
                _BARE: [theirs(bare, what) for bare in bares[:threads]],
            }
            found = in_turns(contenders, size=max(5, size // threads), rounds=rounds)
            _line(case, f"{what} (1 KiB each)", threads, found)


def oracle(url: str, *, quick: bool) -> Case:
    """Case b."""
    case = Case("b", "the timestamp oracle on PostgreSQL; psycopg with the bare UPDATE or SELECT")
    size, rounds = (20, 4) if quick else (100, 20)
    with schema(url) as mine, _bares(mine, max(THREADS)) as bares:
        clock = itertools.count(1_700_000_000_000)
        opened = open_oracle(mine, "bench", lambda: next(clock))
        try:
            first = bares[0]
            first.execute(first.text("CREATE TABLE {schema}.bare (LIKE {oracle} INCLUDING ALL)"))
            first.execute(first.text("INSERT INTO {schema}.bare VALUES ('bench', 0, 0)"))
            for what in ("write_ts", "read_ts", "apply_write"):
                for threads in THREADS:
                    contenders = {
                        _OURS: [_asks(opened, what, clock)] * threads,
                        _BARE: [_updates(bare, what, clock) for bare in bares[:threads]],
                    }
                    found = in_turns(contenders, size=max(5, size // threads), rounds=rounds)
                    _line(case, what, threads, found)
                    if threads == 1:
                        ratio = found[_OURS].p50_over(found[_BARE])
                        case.target(f"{what} : bare statement, p50", ratio, most=1.2)
        finally:
            opened.close()
    return case


def _asks(opened: Any, what: str, clock: Iterator[int]) -> Step:
    if what == "apply_write":
        return lambda: opened.apply_write(next(clock))
    act: Step = getattr(opened, what)
    return act


def _updates(bare: Bare, what: str, clock: Iterator[int]) -> Step:
    """The design's statements."""
    texts = {
        "write_ts": "UPDATE {schema}.bare SET write_ts = greatest(write_ts + 1, %s) WHERE timeline = %s RETURNING write_ts",
        "read_ts": "SELECT read_ts FROM {schema}.bare WHERE timeline = %s",
        "apply_write": "UPDATE {schema}.bare SET write_ts = greatest(write_ts, %s), read_ts = greatest(read_ts, %s)"
        " WHERE timeline = %s",
    }
    statement = bare.text(texts[what])

    def values() -> tuple[object, ...]:
        if what == "read_ts":
            return ("bench",)
        now = next(clock)
        return (now, "bench") if what == "write_ts" else (now, now, "bench")

    def step() -> None:
        bare.execute(statement, values(), prepare=True)
        if what != "apply_write":
            bare.cursor.fetchone()

    return step
