"""Whether a recorded history of transactions is strictly serializable: what its own reads prove, in the manner of Elle.

Promise: an anomaly that is reported is one: a value that nobody can have read, or a cycle of transactions each of which must come before
the next, told step by step. The time it takes grows with the reads of a key times what is ever added to it, so that histories of some
thousands of transactions take seconds. What no read has observed proves nothing, so a history should end with reads of everything.

Every key holds values that are only ever added, each of them once. Then a read orders itself against every transaction that adds to the
key: it comes after those whose values it saw, and before those whose values it did not see. Where reads also give the order in which the
values were added (lists), the transactions that added them are in that order too. On top of that come the orders that the system
promises: of real time, or of each process. Source: Kingsbury and Alvaro, "Elle: Inferring Isolation Anomalies from Experimental
Observations" (VLDB 2020), with sets beside its lists; names of cycles are Adya's.
"""

from __future__ import annotations

import itertools
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

import msgspec

Order: TypeAlias = Literal["real time", "process", "none"]
"""What besides reads orders transactions: that one had ended before another began, the same in one process, or nothing."""


class Append(msgspec.Struct, frozen=True, tag=True):
    """A value added to a key; no other operation of the history adds the same value to it."""

    key: str
    value: int


class Read(msgspec.Struct, frozen=True, tag=True):
    """All values of a key; ``ordered`` where they stand in the order in which they were added."""

    key: str
    values: tuple[int, ...]
    ordered: bool = False


class Transaction(msgspec.Struct, frozen=True):
    """A transaction, or a statement by itself.

    Args:
        process: who did it.
        operations: what it did, in no order.
        call: when it began, in nanoseconds of a clock all processes share.
        end: when it returned; `None` when its outcome is unknown.
        failed: whether it is known not to have happened.
    """

    process: int
    operations: tuple[Append | Read, ...]
    call: int
    end: int | None = None
    failed: bool = False

    def __str__(self) -> str:
        """For a person: who did what, when, and with what outcome."""
        did = "; ".join(
            f"append {o.value} to {o.key}"
            if isinstance(o, Append)
            else f"read {len(o.values)} values of {o.key} (the last {o.values[-3:]})"
            for o in self.operations
        )
        outcome = (
            "failed"
            if self.failed
            else "outcome unknown"
            if self.end is None
            else f"ended {self.end}"
        )
        return f"[{self.process}] {did}; began {self.call}, {outcome}"


class Anomaly(msgspec.Struct, frozen=True):
    """Something that no serializable execution shows: its name, and how it is seen."""

    name: str
    explanation: str

    def __str__(self) -> str:
        return f"{self.name}: {self.explanation}"


def check(history: Iterable[Transaction], *, order: Order = "real time") -> list[Anomaly]:
    """The anomalies of a history; of cycles one for each knot of them, as short as there is.

    Args:
        history: its transactions, in any order.
        order: which order the system promises besides serializability.
    """
    found = _History(list(history))
    anomalies = [*found.impossible_reads(), *found.disagreements()]
    return anomalies or list(found.cycles(order))


class _History:
    """What reads say of a history."""

    def __init__(self, transactions: list[Transaction]) -> None:
        observed = {
            (o.key, v)
            for t in transactions
            for o in t.operations
            if isinstance(o, Read)
            for v in o.values
        }
        self.writers: dict[tuple[str, int], Transaction] = {}
        self.twice: list[tuple[str, int]] = []
        for transaction in transactions:
            for o in transaction.operations:
                if isinstance(o, Append):
                    if (o.key, o.value) in self.writers:
                        self.twice.append((o.key, o.value))
                    self.writers[o.key, o.value] = transaction
        # One of unknown outcome has happened iff somebody saw it; its own reads were never told to anybody.
        self.happened = [
            t
            for t in transactions
            if not t.failed
            and (t.end is not None or any((o.key, o.value) in observed for o in _appends(t)))
        ]
        self.index = {id(t): i for i, t in enumerate(self.happened)}
        self.added: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for i, transaction in enumerate(self.happened):
            for o in _appends(transaction):
                self.added[o.key].append((o.value, i))

    def _reads(self) -> Iterator[tuple[int, Read]]:
        for i, transaction in enumerate(self.happened):
            if transaction.end is None:
                continue
            for o in transaction.operations:
                if isinstance(o, Read):
                    yield i, o

    def impossible_reads(self) -> Iterator[Anomaly]:
        """Values read that were never written, not committed, or there twice."""
        for key, value in self.twice:
            yield Anomaly("bad history", f"{value} is appended to {key} more than once")
        for i, read in self._reads():
            said = f"{self.happened[i]}"
            if len(set(read.values)) < len(read.values):
                again = sorted(v for v in set(read.values) if read.values.count(v) > 1)
                yield Anomaly("duplicate", f"{again} of {read.key} more than once in {said}")
            for value in read.values:
                writer = self.writers.get((read.key, value))
                if writer is None:
                    yield Anomaly("garbage read", f"nobody wrote {value} of {read.key} in {said}")
                elif writer.failed:
                    yield Anomaly(
                        "G1a, aborted read",
                        f"{value} of {read.key} in {said}, written by {writer}",
                    )

    def disagreements(self) -> Iterator[Anomaly]:
        """Reads of a list that are no prefixes of each other."""
        for key, lists in self._lists().items():
            for shorter, longer in itertools.pairwise(lists):
                if longer[: len(shorter)] != shorter:
                    at = next(
                        n for n, (a, b) in enumerate(zip(shorter, longer, strict=False)) if a != b
                    )
                    yield Anomaly(
                        "incompatible order",
                        f"reads of {key} differ at {at}: {shorter[at : at + 3]} and {longer[at : at + 3]}",
                    )

    def _lists(self) -> Mapping[str, list[tuple[int, ...]]]:
        """The reads of each list, shortest first."""
        found: dict[str, set[tuple[int, ...]]] = defaultdict(set)
        for _, read in self._reads():
            if read.ordered:
                found[read.key].add(read.values)
        return {key: sorted(lists, key=len) for key, lists in found.items()}

    def cycles(self, order: Order) -> Iterator[Anomaly]:
        """Cycles of what must come before what."""
        graph = _Graph(len(self.happened))
        self._add_reads(graph)
        for key, lists in self._lists().items():
            writers = [self.index[id(self.writers[key, value])] for value in lists[-1]]
            for before, after in itertools.pairwise(writers):
                graph.add(before, after, "ww", key)
        if order == "real time":
            _in_real_time(graph, list(enumerate(self.happened)))
        elif order == "process":
            for process in {t.process for t in self.happened}:
                _in_real_time(
                    graph, [(i, t) for i, t in enumerate(self.happened) if t.process == process]
                )
        for component in graph.knots():
            yield self._told(graph, graph.cycle_in(component))

    def _add_reads(self, graph: _Graph) -> None:
        for reader, read in self._reads():
            seen = set(read.values)
            for value, writer in self.added[read.key]:
                if writer == reader:
                    continue
                if value in seen:
                    graph.add(writer, reader, "wr", read.key)
                else:
                    graph.add(reader, writer, "rw", read.key)

    def _told(self, graph: _Graph, cycle: Sequence[int]) -> Anomaly:
        steps, kinds = [], []
        following = [*cycle[1:], cycle[0]]
        for node, after in zip(cycle, following, strict=True):
            if node < len(self.happened):
                steps.append(str(self.happened[node]))
            kind, key = graph.edges[node][after]
            if not (kind == "time" and steps and steps[-1] == _LATER):
                kinds.append(kind)
                steps.append(_LATER if kind == "time" else f"  {_WHY[kind].format(key)}")
        return Anomaly(_name(kinds), "\n" + "\n".join(steps) + "\n  and so on from the start")


_LATER = "  had ended before this one began:"
_WHY = {
    "ww": "appended to {} before this one:",
    "wr": "was seen in {} by this one:",
    "rw": "read {} before this one appended to it:",
}


def _name(kinds: Sequence[str]) -> str:
    unseen = kinds.count("rw")
    name = "G2" if unseen > 1 else "G-single" if unseen == 1 else "G1c" if "wr" in kinds else "G0"
    return f"{name}, against real time" if "time" in kinds else name


def _appends(transaction: Transaction) -> Iterator[Append]:
    return (o for o in transaction.operations if isinstance(o, Append))


def _in_real_time(graph: _Graph, transactions: Sequence[tuple[int, Transaction]]) -> None:
    """Edges from each to all that began after it had ended, by way of a chain of the ends: linear in their number."""
    ended = sorted(((t.end, i) for i, t in transactions if t.end is not None))
    begun = sorted(((t.call, i) for i, t in transactions))
    link: int | None = None
    at = 0
    for call, i in begun:
        while at < len(ended) and ended[at][0] < call:
            after = graph.node()
            if link is not None:
                graph.add(link, after, "time", "")
            graph.add(ended[at][1], after, "time", "")
            link = after
            at += 1
        if link is not None:
            graph.add(link, i, "time", "")


class _Graph:
    """What must come before what, and why."""

    def __init__(self, nodes: int) -> None:
        self.edges: list[dict[int, tuple[str, str]]] = [{} for _ in range(nodes)]

    def node(self) -> int:
        self.edges.append({})
        return len(self.edges) - 1

    def add(self, before: int, after: int, kind: str, key: str) -> None:
        if before != after:
            self.edges[before].setdefault(after, (kind, key))

    def knots(self) -> Iterator[set[int]]:
        """The strongly connected components with more than one node: Tarjan's algorithm, as a loop."""
        count = 0
        number: dict[int, int] = {}
        low: dict[int, int] = {}
        stack: list[int] = []
        on_stack: set[int] = set()
        for root in range(len(self.edges)):
            if root in number:
                continue
            number[root] = low[root] = count
            count += 1
            stack.append(root)
            on_stack.add(root)
            work = [(root, iter(self.edges[root]))]
            while work:
                node, rest = work[-1]
                for after in rest:
                    if after not in number:
                        number[after] = low[after] = count
                        count += 1
                        stack.append(after)
                        on_stack.add(after)
                        work.append((after, iter(self.edges[after])))
                        break
                    if after in on_stack:
                        low[node] = min(low[node], number[after])
                else:
                    work.pop()
                    if work:
                        low[work[-1][0]] = min(low[work[-1][0]], low[node])
                    if low[node] == number[node]:
                        component: set[int] = set()
                        while not component or node not in component:
                            component.add(stack.pop())
                        on_stack -= component
                        if len(component) > 1:
                            yield component

    def cycle_in(self, component: set[int]) -> list[int]:
        """A shortest cycle through some of a component's nodes."""
        best: list[int] = []
        for start in sorted(component)[:32]:
            came: dict[int, int] = {}
            queue = deque([start])
            while queue:
                node = queue.popleft()
                if start in self.edges[node] and node != start:
                    path = [node]
                    while path[-1] != start:
                        path.append(came[path[-1]])
                    if not best or len(path) < len(best):
                        best = path[::-1]
                    break
                for after in self.edges[node]:
                    if after in component and after != start and after not in came:
                        came[after] = node
                        queue.append(after)
        return best
