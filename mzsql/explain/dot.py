"""Plans AS DOT: a graph for Graphviz with the texts of AS TEXT.

Promise: a box for each operator and binding, with its attributes; an edge from each input to its reader; a frame around
each object.
"""

from __future__ import annotations

from collections.abc import Iterable

from mzsql.explain.lines import Lines


def dot(plans: Iterable[tuple[str, Lines]]) -> str:
    """A graph of plans, each with its header."""
    out = ["digraph plan {", "  rankdir = BT", '  node [shape = box, fontname = "monospace"]']
    number = 0
    for cluster, (header, lines) in enumerate(plans):
        out.append(f"  subgraph cluster_{cluster} {{")
        out.append(f"    label = {_quoted([header.removesuffix(':')])}")
        boxes, edges = _graph(lines, number)
        number += len(boxes)
        out.extend(f"    n{box} [label = {_quoted(texts)}]" for box, texts in boxes)
        out.extend(f"    n{below} -> n{above}" for below, above in edges)
        out.append("  }")
    return "\n".join([*out, "}"]) + "\n"


def _graph(lines: Lines, first: int) -> tuple[list[tuple[int, list[str]]], list[tuple[int, int]]]:
    """The boxes with their texts, and the edges."""
    boxes: list[tuple[int, list[str]]] = []
    edges: list[tuple[int, int]] = []
    open_: list[tuple[int, int]] = []
    for line in lines.all():
        while open_ and open_[-1][0] >= line.level and line.is_node:
            open_.pop()
        if line.is_node:
            box = first + len(boxes)
            if open_:
                edges.append((box, open_[-1][1]))
            boxes.append((box, [line.text]))
            open_.append((line.level, box))
        elif boxes and line.level > open_[-1][0]:
            depth = line.level - open_[-1][0] - 1
            boxes[-1][1].append("  " * depth + line.text)
    return boxes, edges


def _quoted(texts: Iterable[str]) -> str:
    """A left-aligned label."""
    escaped = (text.replace("\\", "\\\\").replace('"', '\\"') for text in texts)
    return '"' + "".join(f"{text}\\l" for text in escaped) + '"'
