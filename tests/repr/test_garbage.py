"""Pauses of the cycle collector: over when the last one inside leaves, never prolonged for ever, never against the user's will."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from mzsql.repr.garbage import LONGEST, Collector


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    was = gc.isenabled()
    gc.enable()
    yield
    gc.enable() if was else gc.disable()


def test_the_collector_waits_until_the_last_one_leaves() -> None:
    collector = Collector()
    with collector.undisturbed():
        assert not gc.isenabled()
        with collector.undisturbed():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


def test_a_failure_ends_the_pause() -> None:
    with pytest.raises(ValueError, match="x"), Collector().undisturbed():
        raise ValueError("x")
    assert gc.isenabled()


def test_a_pause_that_has_lasted_is_not_prolonged() -> None:
    now = [0.0]
    collector = Collector(lambda: now[0])
    first, late = collector.undisturbed(), collector.undisturbed()
    with late:
        pass
    late = collector.undisturbed()
    first.__enter__()
    now[0] = LONGEST + 1
    late.__enter__()
    first.__exit__(None, None, None)
    assert gc.isenabled()
    with collector.undisturbed():
        assert not gc.isenabled()
        late.__exit__(None, None, None)
        assert not gc.isenabled()
    assert gc.isenabled()


def test_who_switched_it_off_keeps_it_off() -> None:
    gc.disable()
    with Collector().undisturbed():
        pass
    assert not gc.isenabled()
