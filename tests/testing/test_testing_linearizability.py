"""The checker of histories against every order tried by hand, and the models of the three backends."""

from __future__ import annotations

import itertools
import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mzsql.testing import Operation, check_history
from mzsql.testing.histories import NOTHING, Recorder, load_history
from mzsql.testing.models import REFUSED, LogModel, OracleModel, RegisterModel, head_faults


def _fits(model, order):
    state = model.initial()
    for one in order:
        state = model.step(state, one)
        if state is None:
            return False
    return True


def _by_hand(operations, model):
    """Whether some choice of the unknown operations, in some order that keeps what was one after the other, fits."""
    known = [one for one in operations if one.known]
    unknown = [one for one in operations if not one.known]
    for count in range(len(unknown) + 1):
        for chosen in itertools.combinations(unknown, count):
            for order in itertools.permutations([*known, *chosen]):
                backwards = any(
                    b.known and b.end < a.call for i, a in enumerate(order) for b in order[i + 1 :]
                )
                if not backwards and _fits(model, order):
                    return True
    return False


def _times(draw, count):
    operations = []
    for _ in range(count):
        call = draw(st.integers(0, 12))
        end = draw(st.one_of(st.none(), st.integers(call + 1, 14), st.integers(call + 1, 14)))
        operations.append((call, end))
    return operations


@st.composite
def _registers(draw):
    history = []
    for number, (call, end) in enumerate(_times(draw, draw(st.integers(1, 6)))):
        name = draw(st.sampled_from(["set", "get", "remove", "size"]))
        value = draw(st.sampled_from(["a:1", "b:2", None]))
        args = (value or "a:1",) if name == "set" else ()
        result = draw(st.sampled_from([1, 2, None])) if name == "size" else value
        history.append(Operation(number, "k", name, args, call, end, result))
    return history


@st.composite
def _logs(draw):
    history = []
    for number, (call, end) in enumerate(_times(draw, draw(st.integers(1, 6)))):
        name = draw(st.sampled_from(["compare_and_set"] * 3 + ["scan", "truncate", "wait"]))
        seqno = draw(st.sampled_from([None, 0, 1]))
        if name == "compare_and_set":
            args, result = (seqno, f"v{number}"), draw(st.booleans())
        elif name == "scan":
            entries = draw(st.lists(st.integers(0, 5), max_size=2))
            args, result = (0, 5), [[i, f"v{n}"] for i, n in enumerate(entries)]
        elif name == "truncate":
            args, result = (seqno or 0,), draw(st.sampled_from([REFUSED, 0, 1]))
        else:
            args, result = (-1 if seqno is None else seqno,), draw(st.booleans())
        history.append(Operation(number, "k", name, args, call, end, result))
    return history


@st.composite
def _oracles(draw):
    history = []
    for number, (call, end) in enumerate(_times(draw, draw(st.integers(1, 6)))):
        name = draw(st.sampled_from(["write_ts", "apply_write", "read_ts", "peek_write_ts"]))
        ts = draw(st.integers(0, 4))
        args = {"write_ts": (draw(st.integers(0, 2)),), "apply_write": (ts,)}.get(name, ())
        history.append(Operation(number, "t", name, args, call, end, ts))
    return history


@pytest.mark.parametrize(
    ("histories", "model"),
    [(_registers(), RegisterModel()), (_logs(), LogModel()), (_oracles(), OracleModel())],
    ids=["register", "log", "oracle"],
)
def test_the_search_agrees_with_trying_every_order(histories, model):
    outcomes = []

    @settings(max_examples=150, deadline=None, derandomize=True)
    @given(history=histories)
    def agrees(history):
        verdict = check_history(history, lambda _: model)
        assert verdict.outcome == ("linearizable" if _by_hand(history, model) else "violation"), (
            verdict.text
        )
        outcomes.append(verdict.outcome)

    agrees()
    assert set(outcomes) == {"linearizable", "violation"}


def _register(*rows):
    return [Operation(i, "k", *row) for i, row in enumerate(rows)]


def _verdict(history, model=RegisterModel, **rest):
    return check_history(history, lambda _: model(), **rest)


def test_touching_operations_are_concurrent_and_later_ones_are_not():
    touching = _register(("set", ("a:1",), 0, 5), ("get", (), 5, 6, None))
    assert _verdict(touching).outcome == "linearizable"
    after = _register(("set", ("a:1",), 0, 5), ("get", (), 6, 7, None))
    verdict = _verdict(after)
    assert verdict.outcome == "violation"
    assert verdict.key == "k"
    assert "at most 1 fit" in verdict.text
    assert "[1] get() on 'k' at 6 -> None by 7" in verdict.text


def test_an_unknown_outcome_may_be_late_or_never_but_not_both():
    lost = ("set", ("b:1",), 1)
    assert (
        _verdict(_register(("set", ("a:1",), 0, 1), lost, ("get", (), 50, 51, "b:1"))).outcome
        == "linearizable"
    )
    never = _register(("set", ("a:1",), 0, 1), lost, ("get", (), 50, 51, "a:1"))
    assert _verdict(never).outcome == "linearizable"
    back = [
        *never,
        Operation(9, "k", "get", (), 60, 61, "b:1"),
        Operation(9, "k", "get", (), 70, 71, "a:1"),
    ]
    assert _verdict(back).outcome == "violation"
    early = _register(("get", (), 0, 1, "b:1"), ("set", ("b:1",), 2))
    assert _verdict(early).outcome == "violation"


def test_an_allocation_of_unknown_outcome_may_have_answered_anything_above():
    def after(*rows):
        unknown = Operation(0, "t", "write_ts", (10,), 0)
        rest = [
            Operation(1, "t", n, a, 10 * i, 10 * i + 1, r) for i, (n, a, r) in enumerate(rows, 1)
        ]
        return _verdict([unknown, *rest], OracleModel).outcome

    assert after(("peek_write_ts", (), 77), ("write_ts", (0,), 78)) == "linearizable"
    assert after(("peek_write_ts", (), 0), ("peek_write_ts", (), 10)) == "linearizable"
    assert after(("peek_write_ts", (), 9)) == "violation"
    assert after(("peek_write_ts", (), 77), ("peek_write_ts", (), 78)) == "violation"
    assert after(("apply_write", (50,), None), ("peek_write_ts", (), 60)) == "linearizable"
    assert after(("apply_write", (50,), None), ("peek_write_ts", (), 49)) == "violation"
    assert after(("peek_write_ts", (), 77), ("write_ts", (0,), 77)) == "violation"


def test_keys_are_judged_apart_and_the_first_bad_one_is_named():
    history = [
        Operation(n, f"k{n % 50}", "set", (f"v{n}:1",), 0, 1000) for n in range(500)
    ]  # as one search this would be hopeless
    assert _verdict(history).outcome == "linearizable"
    bad = Operation(9, "k7", "get", (), 2000, 2001, "never:1")
    verdict = _verdict([*history, bad])
    assert (verdict.outcome, verdict.key) == ("violation", "k7")


def test_a_long_history_takes_no_recursion_and_few_steps():
    history = []
    for n in range(20_000):
        history.append(Operation(0, "k", "set", (f"v{n}:1",), 10 * n, 10 * n + 12))
        history.append(Operation(1, "k", "get", (), 10 * n + 1, 10 * n + 8, f"v{n}:1"))
    verdict = _verdict(history)
    assert verdict.outcome == "linearizable"
    assert verdict.steps < 200_000


def _timeline(seed, unknown, count=1_500, processes=5):
    """What processes did to a timeline that is right, a share of it with unknown outcomes of which half took effect."""
    rng = random.Random(seed)
    moments = []
    for process in range(processes):
        now = rng.randrange(10)
        for number in range(count // processes):
            took = rng.randrange(1, 8) * rng.choice((1,) * 9 + (40,))
            moments.append((now + rng.randint(0, took), process, number, now, now + took + 1))
            now += took + 1 + rng.randrange(1, 6)
    read = write = 0
    history = []
    allocated = [[] for _ in range(processes)]
    for _, process, number, call, end in sorted(moments):
        lost = rng.random() < unknown
        acts = not lost or rng.random() < 0.5
        name = rng.choices(("write_ts", "apply_write", "read_ts", "peek_write_ts"), (7, 5, 5, 3))[0]
        args, result = (), None
        if name == "write_ts":
            args = (1_000 + 2 * number + rng.randrange(-20, 20),)
            result = max(write + 1, args[0])
            write = result if acts else write
            allocated[process] += [] if lost else [result]
        elif name == "apply_write":
            last = allocated[process].pop() if allocated[process] else 0
            args = (max(0, last + rng.choice((0, 0, 0, 0, -7, 3))),)
            read, write = (max(read, *args), max(write, *args)) if acts else (read, write)
        else:
            result = read if name == "read_ts" else write
        outcome = (None, None) if lost else (end, result)
        history.append(Operation(process, "t", name, args, call, *outcome))
    return history


@pytest.mark.parametrize("unknown", [0.1, 0.3])
def test_long_histories_with_many_unknown_outcomes_are_decided(unknown):
    for seed in range(3):
        history = _timeline(seed, unknown)
        verdict = _verdict(history, OracleModel, budget=100_000)
        assert verdict.outcome == "linearizable", verdict.text
    reads = [n for n, one in enumerate(history) if one.known and one.name == "read_ts"]
    wrong = history[reads[20]]
    history[reads[20]] = msgspec.structs.replace(wrong, result=wrong.result - 1)
    assert _verdict(history, OracleModel).outcome == "violation"


def test_what_the_budget_does_not_decide_is_not_well():
    history = [Operation(n, "k", "set", (f"v{n}:1",), 0, 1000) for n in range(12)]
    history.append(Operation(99, "k", "get", (), 2000, 2001, "never:1"))
    verdict = _verdict(history, budget=500)
    assert verdict.outcome == "undecided"
    assert "500 steps" in verdict.text
    assert _verdict(history).outcome == "violation"


def test_heads_may_lag_but_are_real_and_do_not_go_back_for_one_handle():
    def cas(process, expected, value, call, end, result=True):
        return Operation(process, "k", "compare_and_set", (expected, value), call, end, result)

    def head(process, call, found):
        return Operation(process, "k", "head", (), call, call + 1, found)

    log = [cas(1, None, "a", 0, 1), cas(1, 0, "b", 2, 3)]
    assert head_faults([*log, head(2, 10, [0, "a"]), head(2, 20, [1, "b"])]) == []
    assert head_faults([*log, head(2, 10, None)]) == []
    [back] = head_faults([*log, head(2, 10, [1, "b"]), head(2, 20, [0, "a"])])
    assert "went back" in back
    [own] = head_faults([*log, head(1, 10, [0, "a"])])
    assert "went back" in own
    [unreal] = head_faults([*log, head(2, 10, [1, "c"])])
    assert "nobody had appended" in unreal
    [early] = head_faults([cas(1, None, "a", 5, 6), head(2, 1, [0, "a"])])
    assert "nobody had appended" in early
    assert len(head_faults([cas(1, None, "a", 0, 1, False), head(2, 5, [0, "a"])])) == 1


def test_a_recording_that_was_cut_off_is_read_to_its_last_whole_line(tmp_path):
    from mzsql.location import Determinate, Indeterminate, UsageError

    path = tmp_path / "7.history"

    def fail(failure):
        def act():
            raise failure

        return act

    with Recorder(path, 7) as recorder:
        assert recorder.record("set", "a", ("x:1",), lambda: None) is None
        assert recorder.record("delete", "a", (), lambda: 1) == 1
        assert recorder.record("set", "a", ("y:1",), fail(Indeterminate("?"))) is NOTHING
        recorder.record("set", "a", ("z:1",), fail(Determinate("no")))
        recorder.record("get", "a", (), fail(Indeterminate("?")))
        recorder.record("truncate", "a", (9,), fail(UsageError("no")), refusable=True)
        recorder.record("get", "a", (), fail(ValueError("raw")))
        recorder.record("list", "", (), lambda: {"a": 1})
        recorder.record("set", "a", ("w:1",), lambda: None)
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])  # killed while it wrote the last return
    history = load_history([(7, path)], ["a", "b"])
    found = [(one.name, one.key, one.args, one.known, one.result) for one in history.operations]
    assert found == [
        ("set", "a", ("x:1",), True, None),
        ("remove", "a", (), True, None),
        ("size", "a", (), True, 1),
        ("set", "a", ("y:1",), False, None),
        ("truncate", "a", (9,), True, REFUSED),
        ("size", "a", (), True, 1),
        ("size", "b", (), True, None),
        ("set", "a", ("w:1",), False, None),
    ]
    assert len(history.broken) == 1
    assert "ValueError: raw" in history.broken[0]
    assert (history.begun, history.acknowledged) == (9, 4)
    assert history.refusals["ValueError: raw"] == 1
    assert "1 times ValueError: raw" in history.commonest(9)
