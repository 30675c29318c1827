"""Locks on tables against a plain model of who may hold what with whom, and their fairness."""

from __future__ import annotations

import random
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mzsql.adapter.commit.table_locks import EXCLUSIVE, READ, WRITE, TableLocks
from mzsql.adapter.statements.dml import lock_modes
from mzsql.repr.errors import QueryCanceled
from mzsql.repr.ids import GlobalId
from mzsql.repr.interrupt import Interrupt

HANG = 30.0
TABLES = [GlobalId(f"u{n}") for n in range(1, 4)]
_MODES = st.dictionaries(
    st.sampled_from(TABLES), st.sampled_from([WRITE, READ, EXCLUSIVE]), min_size=1
)


@given(st.lists(_MODES, min_size=1, max_size=6))
def test_whoever_does_not_fit_waits_and_nobody_overtakes(wanted: list[dict[GlobalId, str]]) -> None:
    """The model: taken in order, one is granted iff on no table it differs from, or is exclusive beside, anybody before it."""
    locks = TableLocks()
    granted: list[int] = []
    leave = threading.Event()
    threads = []

    def hold(number: int, modes: dict[GlobalId, str]) -> None:
        with locks.held(modes, Interrupt()):
            granted.append(number)
            leave.wait(HANG)

    def asked() -> int:
        # A request waits for a moment before it is granted; with the lock it is one or the other.
        with locks._lock:
            return len(locks._held) + len(locks._waiting)

    for number, modes in enumerate(wanted):
        thread = threading.Thread(target=hold, args=(number, modes))
        thread.start()
        threads.append(thread)
        end = time.monotonic() + HANG
        while asked() < number + 1:
            assert time.monotonic() < end
            time.sleep(0)
    expected = {
        number
        for number, modes in enumerate(wanted)
        if all(
            mode == before.get(gid, mode) and EXCLUSIVE not in (mode if gid in before else "", "")
            for before in wanted[:number]
            for gid, mode in modes.items()
        )
    }
    assert len(locks._held) == len(expected)
    assert {i for i, m in enumerate(wanted) if any(h.modes is m for h in locks._held)} == expected
    leave.set()
    for thread in threads:
        thread.join(HANG)
        assert not thread.is_alive()
    assert sorted(granted) == list(range(len(wanted)))
    assert locks._held == locks._waiting == []


def test_random_statements_never_meet_who_they_must_not() -> None:
    locks = TableLocks()
    guard = threading.Lock()
    inside: list[dict[GlobalId, str]] = []
    wrong: list[object] = []

    def work(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(50):
            tables = rng.sample(TABLES, rng.randint(1, 3))
            modes = {gid: rng.choice([WRITE, READ, EXCLUSIVE]) for gid in tables}
            with locks.held(modes, Interrupt()):
                with guard:
                    for other in inside:
                        for gid in modes.keys() & other.keys():
                            if modes[gid] != other[gid] or modes[gid] == EXCLUSIVE:
                                wrong.append((modes, other))
                    inside.append(modes)
                time.sleep(0)
                with guard:
                    inside.remove(modes)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG)
        assert not thread.is_alive()
    assert wrong == []


def test_who_gives_up_waiting_blocks_nobody() -> None:
    locks = TableLocks()
    (gid, *_) = TABLES
    with locks.held({gid: WRITE}, Interrupt()):
        with pytest.raises(QueryCanceled), locks.held({gid: EXCLUSIVE}, Interrupt(0.02)):
            pass
        with locks.held({gid: WRITE}, Interrupt(HANG)):
            pass


def test_the_modes_of_a_statement() -> None:
    t, u, _ = TABLES
    assert lock_modes(t, ()) == {t: WRITE}
    assert lock_modes(t, [u]) == {t: WRITE, u: READ}
    assert lock_modes(t, [t, u]) == {t: EXCLUSIVE, u: READ}
