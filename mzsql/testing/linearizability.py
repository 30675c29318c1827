"""Whether a recorded history of concurrent operations is linearizable, for any model.

Promise: the answer is exact within a stated budget of steps, and beyond it the verdict says `undecided`, never that all is well.
Operations whose outcome is unknown (cut off, indeterminate) may take effect at any time after they began, or never. Operations of
different keys are judged apart, which linearizability allows (it is local), and which keeps the search small.

The search is Wing and Gong's ("Testing and Verifying Concurrent Objects", 1993) with Lowe's memory of configurations, pairs of a
set of linearized operations and a state, that were tried before ("Testing for linearizability", 2017), over the doubly linked list of
events that Horn and Kroening ("Faster linearizability checking via P-compositionality", 2015) and porcupine use. It is a loop, not a
recursion, so histories may be long. Operations of unknown outcome are what makes a search long, as each may come anywhere later: they
are tried last, when nothing else fits, and a configuration is dropped where one with the same known operations, the same state and as
many of each kind still to come (`Pending`) was tried before: they need not come. Trade-off: memory grows with the configurations
visited, up to the budget.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Literal, Protocol, runtime_checkable

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


@runtime_checkable
class Pending(Protocol):
    """What a model may say besides, so that histories with many unknown outcomes are decided in few steps."""

    def pending(self, state: Any, operation: Operation, /) -> Hashable | None:
        """What ``operation``, whose outcome is unknown and that has not taken effect, still can do from ``state`` on.

        `None`: nothing, in this and all states that can follow. Two operations for which it is the same do the same, whenever they do.
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

    Event ``2i + 1`` is the call of operation ``i``, ``2i + 2`` its return, and 0 both ends.
    """

    def __init__(self, spans: Sequence[tuple[int, int]]) -> None:
        times = []
        for i, (call, end) in enumerate(spans):
            times.append((call, 0, 2 * i + 1))
            # Of one moment's events calls come first: operations that touch are concurrent.
            times.append((end, 1, 2 * i + 2))
        times.sort()
        order = [0, *(event for _, _, event in times), 0]
        size = 2 * len(spans) + 1
        self.next = [0] * size
        self.previous = [0] * size
        for left, right in itertools.pairwise(order):
            self.next[left] = right
            self.previous[right] = left

    def lift(self, i: int) -> None:
        """Take operation ``i`` out."""
        for event in (2 * i + 1, 2 * i + 2):
            left, right = self.previous[event], self.next[event]
            self.next[left], self.previous[right] = right, left

    def put_back(self, i: int) -> None:
        """Undo the last `lift`, which was of ``i``."""
        for event in (2 * i + 2, 2 * i + 1):
            self.next[self.previous[event]] = event
            self.previous[self.next[event]] = event


_Done = tuple[int, int]
"""Which known operations are linearized: all below the first number, and those whose bit, counted from it, is set in the second."""


def _with(done: _Done, i: int) -> _Done:
    below, bits = done
    bits |= 1 << (i - below)
    while bits & 1:
        bits >>= 1
        below += 1
    return (below, bits)


class _Configuration(msgspec.Struct, frozen=True):
    """Where the search stands: the known operations ``done``, the unknown ones ``taken`` (a bit each), and the state after them."""

    state: Any
    done: _Done = (0, 0)
    taken: int = 0


class _Search:
    def __init__(self, operations: Sequence[Operation], model: Model, budget: int) -> None:
        in_order = sorted(operations, key=lambda one: one.call)
        self._known = [one for one in in_order if one.known]
        self._unknown = [one for one in in_order if not one.known]
        self._ends = [one.end for one in self._known if one.end is not None]
        self._model = model
        self._pending = model if isinstance(model, Pending) else None
        self._budget = budget
        calls = (one.call for one in self._known)
        self._events = _Events(list(zip(calls, self._ends, strict=True)))
        self._at = _Configuration(model.initial())
        self._seen: dict[tuple[_Done, Hashable], list[Counter[Hashable]]] = {}
        self._stack: list[tuple[int, _Configuration]] = []
        self._longest: list[int] = []
        self._longest_state: Hashable = self._at.state
        self.steps = 0

    def run(self) -> Outcome:
        """Try candidates in turn: ``2i + 1`` is known operation ``i``, as its call's event, and ``-1 - u`` unknown operation ``u``."""
        candidate = self._first()
        while self._at.done[0] < len(self._known):
            if candidate is not None:
                self.steps += 1
                if self.steps > self._budget:
                    return "undecided"
                candidate = self._first() if self._take(candidate) else self._after(candidate)
                continue
            # Nothing can come next, so the last choice was wrong.
            if len(self._stack) > len(self._longest):
                self._longest = [chosen for chosen, _ in self._stack]
                self._longest_state = self._at.state
            if not self._stack:
                return "violation"
            candidate, self._at = self._stack.pop()
            if candidate > 0:
                self._events.put_back(candidate // 2)
            candidate = self._after(candidate)
        return "linearizable"

    def _first(self) -> int | None:
        event = self._events.next[0]
        return event if event % 2 else self._next_unknown(0)

    def _after(self, candidate: int) -> int | None:
        if candidate < 0:
            return self._next_unknown(-candidate)
        event = self._events.next[candidate]
        return event if event % 2 else self._next_unknown(0)

    def _next_unknown(self, start: int) -> int | None:
        """The first from ``start`` on that may come next: it had begun when the first of the others returned; its kind was not tried."""
        limit = self._first_end()
        before = set()
        for u, one in enumerate(self._unknown):
            if limit is None or one.call > limit:
                return None
            if self._at.taken >> u & 1:
                continue
            kind = self._kind(self._at.state, u)
            if kind is None or kind in before:
                continue
            if u >= start:
                return -1 - u
            before.add(kind)
        return None

    def _first_end(self) -> int | None:
        event = self._events.next[0]
        while event % 2:
            event = self._events.next[event]
        return self._ends[event // 2 - 1] if event else None

    def _kind(self, state: Any, u: int) -> Hashable | None:
        return u if self._pending is None else self._pending.pending(state, self._unknown[u])

    def _take(self, candidate: int) -> bool:
        """Let it take effect, if it can, and if what follows was not tried yet."""
        at = self._at
        known = candidate > 0
        one = self._known[candidate // 2] if known else self._unknown[-1 - candidate]
        state = self._model.step(at.state, one)
        if state is None:
            return False
        done = _with(at.done, candidate // 2) if known else at.done
        taken = at.taken if known else at.taken | 1 << (-1 - candidate)
        if not self._is_new(_Configuration(state, done, taken)):
            return False
        self._stack.append((candidate, at))
        self._at = _Configuration(state, done, taken)
        if known:
            self._events.lift(candidate // 2)
        return True

    def _is_new(self, at: _Configuration) -> bool:
        """Whether nothing was tried that could do all that ``at`` can; remember it."""
        tried = self._seen.setdefault((at.done, at.state), [])
        left = self._left(at)
        if any(left <= one for one in tried):
            return False
        tried[:] = [one for one in tried if not one <= left]
        tried.append(left)
        return True

    def _left(self, at: _Configuration) -> Counter[Hashable]:
        """How many operations of unknown outcome, of each kind, can still do something; after the same known ones, the same have begun."""
        untaken = (u for u in range(len(self._unknown)) if not at.taken >> u & 1)
        kinds = (self._kind(at.state, u) for u in untaken)
        return Counter(kind for kind in kinds if kind is not None)

    def _chosen(self, candidate: int) -> Operation:
        return self._known[candidate // 2] if candidate > 0 else self._unknown[-1 - candidate]

    def explain(self, outcome: Outcome, shown: int = 8) -> str:
        everything = sorted([*self._known, *self._unknown], key=lambda one: one.call)
        if outcome == "undecided":
            return (
                f"{len(everything)} operations were not decided within {self._budget} steps;"
                " run a shorter history, or allow more steps"
            )
        linearized = [self._chosen(candidate) for candidate in self._longest]
        there = {id(one) for one in linearized}
        rest = [one for one in everything if id(one) not in there]
        returns = [one.end for one in rest if one.end is not None]
        candidates = [one for one in rest if one.call <= min(returns)]
        lines = [
            f"of {len(everything)} operations at most {len(linearized)} fit one order"
            " ([process], nanoseconds since the first one began):"
        ]
        if len(linearized) > shown:
            lines.append(f"  ... {len(linearized) - shown} before")
        start = everything[0].call
        lines += [f"  {one.since(start)}" for one in linearized[-shown:]]
        lines.append(f"then the state is {self._longest_state!r}, and none of these can be next:")
        lines += [f"  {one.since(start)}" for one in candidates]
        return "\n".join(lines)
