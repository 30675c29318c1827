"""Faults of the kind a careless change makes, and where a room's code has places for them.

A fault is a place and an operator of cosmic-ray's (a comparison flipped, a bound off by one, a condition negated, a loop that never
runs, another exception caught), or one of the two operators here, which cosmic-ray lacks: a call whose answer nobody takes left out (a
status not sent, a lock not released, a retry lost) and an error not raised (a fence ignored). Which faults a run plants follows from
its seed and the code alone, so a run repeats.

Left out are places that no behaviour follows from: annotations, docstrings, texts of errors, logging, metrics' help, assertions of
types for the checker, ``if TYPE_CHECKING``, and what guards only against our own slips (``frozen`` of a class, ``strict`` of a zip).
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cosmic_ray.mutating import MutationVisitor
from cosmic_ray.operators.operator import Example, Operator
from cosmic_ray.plugins import get_operator
from parso import parse
from parso.python.tree import ExprStmt, Keyword, KeywordStatement, PythonNode

_FLIPS = (
    "ReplaceComparisonOperator_Eq_NotEq",
    "ReplaceComparisonOperator_NotEq_Eq",
    "ReplaceComparisonOperator_Lt_LtE",
    "ReplaceComparisonOperator_Lt_GtE",
    "ReplaceComparisonOperator_LtE_Lt",
    "ReplaceComparisonOperator_LtE_Gt",
    "ReplaceComparisonOperator_Gt_GtE",
    "ReplaceComparisonOperator_Gt_LtE",
    "ReplaceComparisonOperator_GtE_Gt",
    "ReplaceComparisonOperator_GtE_Lt",
    "ReplaceComparisonOperator_Is_IsNot",
    "ReplaceComparisonOperator_IsNot_Is",
    "ReplaceBinaryOperator_Add_Sub",
    "ReplaceBinaryOperator_Sub_Add",
    "ReplaceUnaryOperator_Delete_Not",
    "AddNot",
    "ReplaceAndWithOr",
    "ReplaceOrWithAnd",
    "ReplaceTrueWithFalse",
    "ReplaceFalseWithTrue",
    "ReplaceBreakWithContinue",
    "ReplaceContinueWithBreak",
    "ExceptionReplacer",
    "NumberReplacer",
    "ZeroIterationForLoop",
)
_NO_BEHAVIOUR = re.compile(
    r"^\s*(@|class |from |import |raise AssertionError|assert |_?log(ger)?\.|"
    r".*(TYPE_CHECKING|__slots__|hint=|strict=True|Gauge\(|Counter\(|Histogram\())"
)


def _statement_of_a_call(node: Any) -> bool:
    """Whether ``node`` is a call that stands by itself as a statement."""
    if node.parent is None or node.parent.type != "simple_stmt" or isinstance(node, ExprStmt):
        return False
    if not isinstance(node, PythonNode) or node.type not in ("atom_expr", "power"):
        return False
    last = node.children[-1]
    return last.type == "trailer" and last.children[0] == "("


class _Drop(Operator):
    """Leaves out a statement that `fits`."""

    def fits(self, node: Any) -> bool:
        """Whether ``node`` is one."""
        raise NotImplementedError

    def mutation_positions(self, node: Any) -> Iterator[tuple[Any, Any]]:
        """Where ``node`` is one."""
        if self.fits(node):
            yield node.start_pos, node.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        """``pass`` in its place."""
        assert index == 0
        return Keyword("pass", node.start_pos, prefix=node.get_first_leaf().prefix)


class DropCall(_Drop):
    """Leaves out a call whose answer nobody takes."""

    def fits(self, node: Any) -> bool:
        """Whether ``node`` is such a call."""
        return _statement_of_a_call(node) and not node.get_code().lstrip().startswith("super()")

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Before and after."""
        return (Example("a = f()\ng.h(a)\n", "a = f()\npass\n"),)


class DropRaise(_Drop):
    """Goes on where an error is raised."""

    def fits(self, node: Any) -> bool:
        """Whether ``node`` raises."""
        return isinstance(node, KeywordStatement) and node.type == "raise_stmt"

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Before and after."""
        return (Example("if a:\n    raise E(a)\n", "if a:\n    pass\n"),)


_OWN: dict[str, type[Operator]] = {"DropCall": DropCall, "DropRaise": DropRaise}
OPERATORS: tuple[str, ...] = (*_FLIPS, *_OWN)


@dataclass(frozen=True)
class Fault:
    """One fault: the ``occurrence``-th place in ``path`` (below the root) that ``operator`` can change."""

    path: str
    operator: str
    occurrence: int
    line: int
    """From 1."""

    text: str
    """The line as it is, without its indentation: with the operator, what a survivor is known by when lines have moved."""

    def planted(self, source: str) -> str | None:
        """The source with the fault in it; nothing where it would be the same program or none.

        Args:
            source: the file's text without the fault.
        """
        changed = MutationVisitor.mutate_code(source, _made(self.operator), self.occurrence)
        if changed is None or changed == source:
            return None
        try:
            compile(changed, self.path, "exec", dont_inherit=True)
        except SyntaxError:
            return None
        return str(changed)


def _made(name: str) -> Any:
    own = _OWN.get(name)
    return own() if own is not None else get_operator(f"core/{name}")()


def _nodes(node: Any) -> Iterator[Any]:
    """All nodes in the order in which cosmic-ray visits them: each before what is in it."""
    waiting = [node]
    while waiting:
        one = waiting.pop()
        yield one
        waiting.extend(reversed(getattr(one, "children", ())))


def _in_annotation(node: Any) -> bool:
    """Whether ``node`` belongs to an annotation, which nothing runs."""
    while node.parent is not None:
        parent = node.parent
        if parent.type in ("annassign", "tfpdef") and parent.children.index(node) > 0:
            return not (
                parent.type == "annassign"
                and node is parent.children[-1]
                and len(parent.children) > 2
            )
        if parent.type == "funcdef" and parent.annotation is node:
            return True
        node = parent
    return False


def faults_of(path: str, source: str) -> list[Fault]:
    """Every fault that fits the file.

    Args:
        path: the file, below the root.
        source: its text.
    """
    lines = source.split("\n")
    nodes = list(_nodes(parse(source)))
    found = []
    for operator in OPERATORS:
        made, occurrence = _made(operator), 0
        for node in nodes:
            for start, _ in made.mutation_positions(node):
                text = lines[start[0] - 1]
                if not _NO_BEHAVIOUR.match(text) and not _in_annotation(node):
                    found.append(Fault(path, operator, occurrence, start[0], text.strip()))
                occurrence += 1
    return found


def drawn(root: Path, files: Iterable[Path], seed: int, count: int) -> list[Fault]:
    """``count`` faults in ``files``, no two in one line, each kind of operator as likely as another.

    Args:
        root: what paths are told below.
        files: where faults may be planted.
        seed: decides which.
        count: how many; fewer where the files have no more lines.
    """
    by_operator: dict[str, list[Fault]] = {}
    for file in sorted(files):
        for fault in faults_of(str(file.relative_to(root)), file.read_text()):
            by_operator.setdefault(_kind(fault.operator), []).append(fault)
    rng = random.Random(seed)
    chosen: list[Fault] = []
    taken: set[tuple[str, int]] = set()
    while by_operator and len(chosen) < count:
        kind = rng.choice(sorted(by_operator))
        faults = by_operator[kind]
        fault = faults.pop(rng.randrange(len(faults)))
        if not faults:
            del by_operator[kind]
        if (fault.path, fault.line) not in taken:
            taken.add((fault.path, fault.line))
            chosen.append(fault)
    return chosen


def _kind(operator: str) -> str:
    """The family of an operator: ``ReplaceComparisonOperator`` of ``ReplaceComparisonOperator_Lt_LtE``."""
    return operator.partition("_")[0]
