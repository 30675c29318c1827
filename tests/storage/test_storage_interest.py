"""What readers ask for, in the order in which it is needed."""

from __future__ import annotations

from mzsql.persist import SystemClock
from mzsql.storage.interest import MOST_LATELY, Interest


class Clock(SystemClock):
    now = 100.0

    def monotonic(self) -> float:
        return self.now


def test_what_is_waited_for_comes_before_what_was_asked_for() -> None:
    clock = Clock()
    interest, told = Interest(clock), []
    interest.ask("u1")
    clock.now += 3
    interest.ask("u2")
    assert interest.lately(5) == ["u1", "u2"]
    with interest.waiting("u3", lambda: told.append("u3")):
        with interest.waiting("u3", lambda: told.append("again")):
            assert interest.awaited() == ["u3"]
        assert interest.lately(5) == ["u3", "u1", "u2"]
    with interest.waiting("u2", lambda: told.append("u2")):
        assert interest.lately(5) == ["u2", "u1"]
    assert interest.awaited() == []
    assert told == ["u3", "u2"]
    clock.now += 3
    assert interest.lately(5) == ["u2"]
    interest.ask("u1")
    assert interest.lately(5) == ["u2", "u1"]


def test_few_are_remembered() -> None:
    interest = Interest(Clock())
    for number in range(3 * MOST_LATELY):
        interest.ask(f"u{number}")
    assert interest.lately(5) == [f"u{2 * MOST_LATELY + n}" for n in range(MOST_LATELY)]
