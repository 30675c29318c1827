"""Whether a recorded history of concurrent operations is linearizable, for any model.

Promise: the answer is exact within a stated budget of steps, and beyond it the verdict says `undecided`, never that all is well.
Operations whose outcome is unknown (cut off, indeterminate) may take effect at any time after they began, or never. Operations of
different keys are judged apart, which linearizability allows (it is local), and which keeps the search small.

The search is Wing and Gong's ("Testing and Verifying Concurrent Objects", 1993) with Lowe's memory of configurations, pairs of a
set of linearized operations and a state, that were tried before ("Testing for linearizability", 2017), over the doubly linked list of
events that Horn and Kroening ("Faster linearizability checking via P-compositionality", 2015) and porcupine use. It is a loop, not a
recursion, so histories may be long. Trade-off: memory grows with the configurations visited, up to the budget.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Literal, Protocol

import msgspec

BUDGET = 2_000_000
"""Steps of the model for each key, after which the search gives up; some seconds."""


class Operation(msgspec.Struct, frozen=True):
    """One operation of a history.

    Args:
        process: who did it; only for messages and for the order of a handle's own operations.
        key: what it was done to; operations of different keys are independent.
        name: which operation.
        args: what it was given.
        call: when it began, in nanoseconds of a clock all processes share.
        end: when it returned, or `None` when its outcome is unknown.
        result: what it returned; meaningless without ``end``.
    """

    process: int
    key: str
    name: str
    args: tuple[Any, ...]
    call: int
    end: int | None = None
    result: Any = None

    @property
    def known(self) -> bool:
        """Whether its outcome is known."""
        return self.end is not None

    def since(self, start: int) -> Operation:
        """The same, its times counted from ``start``."""
        end = None if self.end is None else self.end - start
        return msgspec.structs.replace(self, call=self.call - start, end=end)

    def __str__(self) -> str:
        """For a person: who did what, when, and with what outcome."""
        given = ", ".join(repr(arg) for arg in self.args)
        outcome = f"-> {self.result!r} by {self.end}" if self.known else "-> outcome unknown"
        return f"[{self.process}] {self.name}({given}) on {self.key!r} at {self.call} {outcome}"


class Model(Protocol):
    """What one key is supposed to do, one operation at a time; states are hashable and compare equal when they behave alike."""

    def initial(self) -> Hashable:
        """The state before the history."""

    def step(self, state: Any, operation: Operation) -> Hashable | None:
        """The state after ``operation``, or `None` where it could not have had its outcome.

        Of an operation whose outcome is unknown, `None` also where it would change nothing: it need not be linearized at all.
        """


Outcome = Literal["linearizable", "violation", "undecided"]


class Verdict(msgspec.Struct, frozen=True):
    """What the search found.

    Args:
        outcome: ``undecided`` when the budget was used up.
        key: of a violation, or of what stayed undecided.
        steps: steps of models taken in all.
        text: for a person: the longest sequence that fits, and the operations that cannot follow it.
    """

    outcome: Outcome
    key: str
    steps: int
    text: str


def check_history(
    history: Iterable[Operation], model_of: Callable[[str], Model], *, budget: int = BUDGET
) -> Verdict:
    """The verdict on ``history``, key by key; the first key that is not linearizable decides.

    Args:
        history: in any order.
        model_of: the model of a key.
        budget: steps for each key.
    """
    by_key: dict[str, list[Operation]] = {}
    for operation in history:
        by_key.setdefault(operation.key, []).append(operation)
    steps = 0
    for key in sorted(by_key):
        search = _Search(by_key[key], model_of(key), budget)
        outcome = search.run()
        steps += search.steps
        if outcome != "linearizable":
            return Verdict(outcome, key, steps, search.explain(outcome))
    return Verdict("linearizable", "", steps, "")


class _Events:
    """The calls and returns in order of time, as a doubly linked list from which operations are lifted and put back.

    Event ``2i + 1`` is the call of operation ``i``, ``2i + 2`` its return (absent where the outcome is unknown), and 0 both ends.
    """

    def __init__(self, operations: Sequence[Operation]) -> None:
        times = []
        for i, one in enumerate(operations):
            times.append((one.call, 0, 2 * i + 1))
            if one.end is not None:
                # Of one moment's events calls come first: operations that touch are concurrent.
                times.append((one.end, 1, 2 * i + 2))
        times.sort()
        order = [0, *(event for _, _, event in times), 0]
        size = 2 * len(operations) + 1
        self.next = [0] * size
        self.previous = [0] * size
        for left, right in itertools.pairwise(order):
            self.next[left] = right
            self.previous[right] = left

    def remove(self, event: int) -> None:
        left, right = self.previous[event], self.next[event]
        self.next[left], self.previous[right] = right, left

    def restore(self, event: int) -> None:
        self.next[self.previous[event]] = event
        self.previous[self.next[event]] = event


_Done = tuple[int, int]
"""Which operations are linearized: all below the first number, and those whose bit, counted from it, is set in the second."""


def _with(done: _Done, i: int) -> _Done:
    below, bits = done
    bits |= 1 << (i - below)
    while bits & 1:
        bits >>= 1
        below += 1
    return (below, bits)


class _Search:
    def __init__(self, operations: Sequence[Operation], model: Model, budget: int) -> None:
        self._operations = sorted(operations, key=lambda one: one.call)
        self._model = model
        self._budget = budget
        self._events = _Events(self._operations)
        self._stack: list[tuple[int, Hashable, _Done]] = []
        self._longest: list[int] = []
        self._longest_state: Hashable = None
        self.steps = 0

    def run(self) -> Outcome:
        operations, events, stack = self._operations, self._events, self._stack
        state = self._model.initial()
        self._longest_state = state
        left = sum(one.known for one in operations)
        seen: set[tuple[_Done, Hashable]] = set()
        done: _Done = (0, 0)
        event = events.next[0]
        while left:
            if event % 2:  # a call: may it be the next to take effect?
                i = event // 2
                self.steps += 1
                if self.steps > self._budget:
                    return "undecided"
                after = self._model.step(state, operations[i])
                further = _with(done, i)
                if after is not None and (further, after) not in seen:
                    seen.add((further, after))
                    stack.append((i, state, done))
                    state, done = after, further
                    self._lift(i)
                    left -= operations[i].known
                    event = events.next[0]
                else:
                    event = events.next[event]
                continue
            # Somebody's return, or the end: nothing from here on can come first, so the last choice was wrong.
            if len(stack) > len(self._longest):
                self._longest = [number for number, _, _ in stack]
                self._longest_state = state
            if not stack:
                return "violation"
            i, state, done = stack.pop()
            left += operations[i].known
            self._put_back(i)
            event = events.next[2 * i + 1]
        return "linearizable"

    def _lift(self, i: int) -> None:
        self._events.remove(2 * i + 1)
        if self._operations[i].known:
            self._events.remove(2 * i + 2)

    def _put_back(self, i: int) -> None:
        if self._operations[i].known:
            self._events.restore(2 * i + 2)
        self._events.restore(2 * i + 1)

    def explain(self, outcome: Outcome, shown: int = 8) -> str:
        if outcome == "undecided":
            return (
                f"{len(self._operations)} operations were not decided within {self._budget} steps;"
                " run a shorter history, or allow more steps"
            )
        linearized = set(self._longest)
        rest = [one for i, one in enumerate(self._operations) if i not in linearized]
        returns = [one.end for one in rest if one.end is not None]
        candidates = [one for one in rest if one.call <= min(returns)]
        lines = [
            f"of {len(self._operations)} operations at most {len(linearized)} fit one order"
            " ([process], nanoseconds since the first one began):"
        ]
        if len(self._longest) > shown:
            lines.append(f"  ... {len(self._longest) - shown} before")
        start = self._operations[0].call
        lines += [f"  {self._operations[i].since(start)}" for i in self._longest[-shown:]]
        lines.append(f"then the state is {self._longest_state!r}, and none of these can be next:")
        lines += [f"  {one.since(start)}" for one in candidates]
        return "\n".join(lines)
