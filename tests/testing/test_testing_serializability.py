"""The serializability checker: it passes what an atomic store does, and catches each fault that is planted."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mzsql.testing.serializability import Append, Order, Read, Transaction, check


def txn(process: int, call: int, end: int | None, *operations: Append | Read, failed: bool = False):
    return Transaction(process, operations, call, end, failed)


def a(value: int, key: str = "x") -> Append:
    return Append(key, value)


def r(*values: int, key: str = "x", ordered: bool = False) -> Read:
    return Read(key, values, ordered)


class Store:
    """Executes transactions one after another, at a moment between each one's call and its end, unless a fault is planted."""

    def __init__(self, seed: int, fault: str | None = None) -> None:
        self.rng = random.Random(seed)
        self.fault = fault
        self.contents: dict[str, list[int]] = {key: [] for key in "xyz"}
        self.stale: dict[str, list[int]] = {key: [] for key in "xyz"}
        self.next = 0

    def run(self, transactions: int, processes: int = 4) -> list[Transaction]:
        history = []
        free = [0] * processes
        clock = 0
        for n in range(transactions):
            clock += self.rng.randrange(1, 5)
            process = self.rng.randrange(processes)
            call = max(free[process], clock - self.rng.randrange(20))
            if n == transactions - 1:
                # Whatever was not seen proves nothing.
                call, did = clock, [Read(k, tuple(v), k == "z") for k, v in self.contents.items()]
            else:
                did = self.one()
            end: int | None = clock + self.rng.randrange(1, 10)
            free[process] = (end or 0) + 1
            call = min(call, clock)
            if self.rng.random() < 0.1 and n < transactions - 1:
                end, free[process] = None, clock + 30
            history.append(Transaction(process, tuple(did), call, end))
        self.rng.shuffle(history)
        return history

    def one(self) -> list[Append | Read]:
        did: list[Append | Read] = []
        kind = self.rng.choice(["read", "write", "both"])
        faulty = self.fault is not None and self.rng.random() < 0.3
        if kind != "write":
            old = faulty and self.fault == "stale"
            keys = "xyz" if kind == "read" else "z"
            for key in keys:
                half = faulty and self.fault == "fractured" and key == "x"
                found = (self.stale if old or half else self.contents)[key]
                did.append(Read(key, tuple(found), key == "z"))
        if kind != "read":
            self.stale = {key: list(values) for key, values in self.contents.items()}
            for key in "z" if kind == "both" else "xy":
                self.next += 1
                did.append(Append(key, self.next))
                lost = faulty and self.fault == "lost update" and kind == "both"
                if lost and self.contents[key]:
                    self.contents[key][-1] = self.next
                else:
                    self.contents[key].append(self.next)
        return did


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 80), st.integers(1, 6))
def test_what_an_atomic_store_does_passes(seed: int, transactions: int, processes: int) -> None:
    history = Store(seed).run(transactions, processes)
    assert check(history) == []


@pytest.mark.parametrize("fault", ["stale", "fractured", "lost update"])
def test_a_store_with_a_fault_is_caught(fault: str) -> None:
    caught = sum(bool(check(Store(seed, fault).run(300))) for seed in range(20))
    assert caught == 20


@pytest.mark.parametrize(
    ("name", "order", "history"),
    [
        ("garbage read", "none", [txn(0, 0, 1, r(1))]),
        ("G1a", "none", [txn(0, 0, 1, a(1), failed=True), txn(1, 2, 3, r(1))]),
        ("duplicate", "none", [txn(0, 0, 1, a(1)), txn(1, 2, 3, r(1, 1))]),
        (
            "incompatible order",
            "none",
            [
                txn(0, 0, 9, a(1)),
                txn(1, 0, 9, a(2)),
                txn(2, 0, 9, r(1, 2, ordered=True)),
                txn(3, 0, 9, r(2, 1, ordered=True)),
            ],
        ),
        # A read that sees half of a transaction.
        ("G-single", "none", [txn(0, 0, 9, a(1), a(1, "y")), txn(1, 0, 9, r(1), r(key="y"))]),
        # Two updates that both read the state before either.
        ("G2", "none", [txn(0, 0, 9, r(), a(1)), txn(1, 0, 9, r(), a(2))]),
        # Write skew: each reads what the other writes.
        (
            "G2",
            "none",
            [txn(0, 0, 9, r(key="y"), a(1)), txn(1, 0, 9, r(), a(2, "y"))],
        ),
        # A long fork: two readers see two writes in either order.
        (
            "G2",
            "none",
            [
                txn(0, 0, 9, a(1)),
                txn(1, 0, 9, a(2, "y")),
                txn(2, 0, 9, r(1), r(key="y")),
                txn(3, 0, 9, r(), r(2, key="y")),
            ],
        ),
        ("G1c", "none", [txn(0, 0, 9, a(1), r(2, key="y")), txn(1, 0, 9, a(2, "y"), r(1))]),
        # The deposed leader's stale read.
        ("G-single, against real time", "real time", [txn(0, 0, 1, a(1)), txn(1, 2, 3, r())]),
        # A process does not see what it wrote itself.
        ("G-single, against real time", "process", [txn(0, 0, 1, a(1)), txn(0, 2, 3, r())]),
        # A read from before its write.
        ("G1c, against real time", "real time", [txn(0, 4, 5, a(1)), txn(1, 2, 3, r(1))]),
        (
            "G0, against real time",
            "real time",
            [
                txn(0, 4, 5, a(1)),
                txn(1, 2, 3, a(2)),
                txn(2, 0, 9, r(1, 2, ordered=True)),
            ],
        ),
        # Two reads go back in time.
        (
            "G-single, against real time",
            "real time",
            [txn(0, 0, 9, a(1)), txn(1, 1, 2, r(1)), txn(2, 3, 4, r())],
        ),
    ],
)
def test_each_anomaly_has_its_name(name: str, order: Order, history: list[Transaction]) -> None:
    found = check(history, order=order)
    assert [one.name.startswith(name) for one in found] == [True], found
    if "real time" in name:
        assert check(history, order="none") == []


def test_what_is_not_known_to_have_happened_is_not_missed() -> None:
    unknown = txn(0, 0, None, a(1), a(1, "y"))
    assert check([unknown, txn(1, 5, 6, r(), r(key="y"))]) == []
    # it may happen at any time later, and then has happened wholly
    late = [unknown, txn(1, 5, 6, r(), r(key="y")), txn(1, 7, 8, r(1), r(1, key="y"))]
    assert check(late) == []
    assert check([*late, txn(1, 9, 10, r(1), r(key="y"))])
    # but not before it began
    assert check([txn(0, 5, None, a(1)), txn(1, 0, 1, r(1))])


def test_serializable_without_real_time_may_be_stale() -> None:
    stale = [txn(0, 0, 1, a(1)), txn(1, 2, 3, r())]
    assert check(stale, order="process") == []
    assert check(stale, order="none") == []


def test_a_cycle_is_told_step_by_step() -> None:
    (found,) = check([txn(0, 0, 1, a(7)), txn(1, 2, 3, r())])
    told = str(found)
    assert "[0] append 7 to x; began 0, ended 1" in told
    assert "had ended before this one began" in told
    assert "[1] read 0 values of x" in told
    assert "read x before this one appended to it" in told


def test_a_long_history_is_checked_too() -> None:
    history = Store(1).run(1_500, 16)
    assert check(history) == []
