"""Window functions as aggregates: the aggregate of a partition is a list of its rows, each with its window function's
value.

Promise: the key of a window function encodes it completely, as EXPLAIN prints it: ``row_number[order_by=[#0 asc
nulls_last]]``, ``lag[ignore_nulls=true, order_by=[]]``, ``first_value[order_by=[] rows between 1 preceding and current
row]``, ``window_agg[sum_integer order_by=[]]`` around an aggregate's own key. The argument is a record of the payload,
then the sort keys. The payload contains the original row: ``list[row]`` for functions without arguments, ``row(row,
argument)`` for others. The result is a list of records (value, row). The renderer turns these into native window
functions (`mzsql.render.nodes.windows`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.aggregate.aggregates import Order, ordered_key, parse_ordered_key
from mzsql.expr.functions.comparison import ANY
from mzsql.expr.functions.declare import Ast
from mzsql.expr.functions.table import AggregateFunc, Engine, ScalarFunc, Sql
from mzsql.repr.types import BIGINT, DOUBLE, ColumnType, SqlType

#: Functions of the row's position alone, and the types of their results.
SCALAR: Mapping[str, SqlType] = {
    **dict.fromkeys(("row_number", "rank", "dense_rank"), BIGINT),
    **dict.fromkeys(("percent_rank", "cume_dist"), DOUBLE),
}
#: Functions with an argument, most of which return its value in another row; that of `ntile` is the number of parts.
VALUE = frozenset({"lag", "lead", "first_value", "last_value", "nth_value", "ntile"})
WINDOW_FUNCTIONS = frozenset((*SCALAR, *VALUE))
#: Functions whose argument is a record of the value and of what determines the row it is taken from.
OF_RECORDS = frozenset({"lag", "lead", "nth_value"})
#: Functions of the frame; the others see the whole partition.
FRAMED = frozenset({"first_value", "last_value", "nth_value"})

#: By kind, the name of several functions over one window that are computed as one, whose result is a record of theirs.
FUSED: Mapping[str, str] = {"value": "fused_value_window_func", "aggregate": "fused_window_agg"}

_BOUND = r"(?:current row|(?:unbounded|\d+|'[^']*') (?:preceding|following))"
_FRAME = (
    rf"(?: (?P<units>rows|range|groups) between (?P<start>{_BOUND}) and (?P<end>{_BOUND})"
    r"(?: exclude (?P<exclude>current row|group|ties))?)?"
)
_PLAIN = re.compile(
    r"(?P<func>\w+)\[(?P<nulls>ignore_nulls=true, )?order_by=\[(?P<order>[^\]]*)\]" + _FRAME + r"\]"
)
_WRAPPED = re.compile(r"window_agg\[(?P<func>.+) order_by=\[(?P<order>[^\]]*)\]" + _FRAME + r"\]")

_FUSED = re.compile(
    r"fused_(?P<kind>value_window_func|window_agg)\[(?P<func>.+) order_by=\[(?P<order>[^\]]*)\]"
    + _FRAME
    + r"\]"
)


@dataclass(frozen=True)
class Frame:
    """A window frame.

    Attributes:
        start: the first row or group, relative to the current one; None: unbounded. For a distance, only the sign
            matters.
        end: the last row or group, likewise.
        units: rows, range or groups.
        exclude: current row, group or ties; empty for no exclusion.
        distances: for RANGE, the distance of each bound as a quoted text; empty where there is none.
    """

    start: int | None
    end: int | None
    units: str = "rows"
    exclude: str = ""
    distances: tuple[str, str] = ("", "")

    @property
    def is_empty(self) -> bool:
        """Whether the frame can contain no row."""
        return self.start is not None and self.end is not None and self.start > self.end

    @property
    def is_plain(self) -> bool:
        """Whether every engine supports the frame: no groups, distances or exclusion."""
        return self.units != "groups" and not self.exclude and not any(self.distances)

    def __str__(self) -> str:
        start = _shown(self.start, "preceding", self.distances[0])
        end = _shown(self.end, "following", self.distances[1])
        exclude = f" exclude {self.exclude}" if self.exclude else ""
        return f"{self.units} between {start} and {end}{exclude}"


def _shown(bound: int | None, unbounded: str, distance: str) -> str:
    if bound is None:
        return f"unbounded {unbounded}"
    if distance:
        return f"{distance} {'preceding' if bound < 0 else 'following'}"
    if bound == 0:
        return "current row"
    return f"{-bound} preceding" if bound < 0 else f"{bound} following"


def _bound(text: str) -> int | None:
    first, side = text.rsplit(" ", 1)
    if first == "unbounded":
        return None
    if first == "current":
        return 0
    count = 1 if first.startswith("'") else int(first)
    return -count if side == "preceding" else count


def _distance(text: str) -> str:
    return text.rsplit(" ", 1)[0] if text.startswith("'") else ""


@dataclass(frozen=True)
class WindowFunc:
    """The parsed key of a window function.

    Attributes:
        func: its name, or an aggregate's key.
        kind: ``scalar``, ``value``, ``aggregate`` or ``fused``.
        order: for each sort key, whether it is descending and whether NULLs come last.
        frame: the frame; None is the default, from the start of the partition to the current row's last peer.
        ignore_nulls: whether rows with a NULL argument are skipped.
        parts: the functions that are fused, over one window: with the same order, frame and treatment of NULLs.
    """

    func: str
    kind: str
    order: Order
    frame: Frame | None = None
    ignore_nulls: bool = False
    parts: tuple[WindowFunc, ...] = ()

    @property
    def key(self) -> str:
        """The key, which `parse` parses."""
        return self._spelled(self.func)

    def shown(self, wrapped: str) -> str:
        """The text in EXPLAIN, with an aggregate named ``wrapped``."""
        return self._spelled(wrapped)

    def _spelled(self, func: str) -> str:
        order = ordered_key("", self.order)[1:-1]
        frame = "" if self.frame is None else f" {self.frame}"
        if self.kind == "aggregate":
            return f"window_agg[{func} {order}{frame}]"
        if self.kind == "fused":
            # Each function of a value tells its frame itself.
            of_values = func == FUSED["value"]
            names = ", ".join(part.key if of_values else part.func for part in self.parts)
            return f"{func}[{names} {order}{'' if of_values else frame}]"
        nulls = "ignore_nulls=true, " if self.ignore_nulls else ""
        return f"{func}[{nulls}{order}{frame}]"


@lru_cache(maxsize=1024)
def parse(key: str) -> WindowFunc | None:
    """The parsed key of a window function; None for any other key."""
    match = _FUSED.fullmatch(key)
    if match is not None:
        return _parse_fused(match)
    match = _WRAPPED.fullmatch(key)
    kind = "aggregate"
    if match is None:
        match = _PLAIN.fullmatch(key)
        if match is None or match["func"] not in WINDOW_FUNCTIONS:
            return None
        kind = "scalar" if match["func"] in SCALAR else "value"
    nulls = kind == "value" and match["nulls"] is not None
    return WindowFunc(match["func"], kind, _order_in(match), _frame_in(match), nulls)


def _parse_fused(match: re.Match[str]) -> WindowFunc | None:
    kind = "value" if match["kind"] == "value_window_func" else "aggregate"
    order, frame = _order_in(match), _frame_in(match)
    names = _split(match["func"])
    if kind == "aggregate":
        parts = tuple(WindowFunc(name, kind, order, frame) for name in names)
        return WindowFunc(FUSED[kind], "fused", order, frame, parts=parts)
    parsed = tuple(part for part in map(parse, names) if part is not None and part.kind == kind)
    if len(parsed) != len(names):
        return None
    first = parsed[0]
    return WindowFunc(FUSED[kind], "fused", order, first.frame, first.ignore_nulls, parsed)


def _split(names: str) -> list[str]:
    """Texts separated by commas that stand in no brackets."""
    found, depth = [""], 0
    for char in names:
        depth += (char == "[") - (char == "]")
        if char == "," and not depth:
            found.append("")
        else:
            found[-1] += char
    return [name.strip() for name in found]


def _order_in(match: re.Match[str]) -> Order:
    ordered = parse_ordered_key(f"x[order_by=[{match['order']}]]")
    assert ordered is not None
    return ordered[1]


def _frame_in(match: re.Match[str]) -> Frame | None:
    if match["start"] is None:
        return None
    return Frame(
        _bound(match["start"]),
        _bound(match["end"]),
        match["units"],
        match["exclude"] or "",
        (_distance(match["start"]), _distance(match["end"])),
    )


def _field(typ: SqlType, position: int) -> SqlType:
    return typ.fields[position][1].type


def argument_type(window: WindowFunc, payload: SqlType) -> SqlType:
    """The type of the argument of a value or aggregate function.

    Args:
        window: the function.
        payload: the type of the payload.
    """
    given = _field(payload, 1)
    return _field(given, 0) if window.func in OF_RECORDS else given


def payload_of(payload: SqlType, position: int) -> SqlType:
    """The type of the payload that a function would have by itself.

    Args:
        payload: the type of the payload of functions that are fused.
        position: which of them.
    """
    return SqlType("record", fields=(payload.fields[0], _field(payload, 1).fields[position]))


def original_type(window: WindowFunc, payload: SqlType) -> SqlType:
    """The type of the original row's record.

    Args:
        window: the function.
        payload: the type of the payload.
    """
    if window.kind != "scalar":
        return _field(payload, 0)
    assert payload.element is not None
    return payload.element


def _result(
    window: WindowFunc, find: Callable[[str], AggregateFunc]
) -> Callable[[Sequence[SqlType]], SqlType]:
    def own_type(one: WindowFunc, payload: SqlType) -> SqlType:
        if one.kind == "scalar":
            return SCALAR[one.func]
        given = argument_type(one, payload)
        return given if one.kind == "value" else find(one.func).result_type([given])

    def rule(args: Sequence[SqlType]) -> SqlType:
        payload = _field(args[0], 0)
        if window.kind == "fused":
            types = [own_type(part, payload_of(payload, i)) for i, part in enumerate(window.parts)]
            parts = tuple((f"f{i + 1}", ColumnType(own)) for i, own in enumerate(types))
            typ = SqlType("record", fields=parts)
        else:
            typ = own_type(window, payload)
        row = original_type(window, payload)
        fields = (("f1", ColumnType(typ)), ("f2", ColumnType(row, nullable=False)))
        return SqlType("list", element=SqlType("record", fields=fields))

    return rule


def aggregate(key: str, find: Callable[[str], AggregateFunc]) -> AggregateFunc | None:
    """The aggregate for a window function's key; None for any other key.

    Args:
        key: the key.
        find: finds the wrapped aggregate by its key.
    """
    window = parse(key)
    if window is None:
        return None
    return AggregateFunc(
        key=key,
        name=window.func,
        args=(ANY,),
        result=_result(window, find),
        kind="basic",
        nullable=False,
        ignores_nulls=False,
    )


def _list(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    name = "ARRAY" if engine is Engine.SPARK else "LIST_VALUE"
    return s.cast(s.call(name, *(arg.ast for arg in args)), typ, engine)


FUNCTIONS: tuple[ScalarFunc, ...] = (
    ScalarFunc(
        key="window_payload",
        name="list",
        args=(ANY,),
        result=lambda args: SqlType("list", element=args[0]),
        value=_list,
        explain="list[{0}]",
        strict=False,
    ),
)
