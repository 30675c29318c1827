"""Window functions as aggregates: what a group's rows amount to is a list of them, each with its window function's result.

Promise: a window function is named by a key that says all of it, as EXPLAIN prints it: ``row_number[order_by=[#0 asc nulls_last]]``,
``lag[ignore_nulls=true, order_by=[]]``, ``first_value[order_by=[] rows between 1 preceding and current row]``,
``window_agg[sum_integer order_by=[]]`` around an aggregate's own key. Its argument is a record: the payload, then the keys of the
order. The payload holds the original row: ``list[row]`` for functions without arguments, ``row(row, argument)`` for the others. The result
is a list of records of a result and its row. Rendering makes native window functions of them (`mzsql.render.windows`).
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

#: Functions of the position alone, and what they give.
SCALAR: Mapping[str, SqlType] = {
    **dict.fromkeys(("row_number", "rank", "dense_rank"), BIGINT),
    **dict.fromkeys(("percent_rank", "cume_dist"), DOUBLE),
}
#: Functions of an argument, and the position of the row that it is taken from; that of `ntile` is how many parts there are.
VALUE = frozenset({"lag", "lead", "first_value", "last_value", "nth_value", "ntile"})
WINDOW_FUNCTIONS = frozenset((*SCALAR, *VALUE))
#: Functions whose argument is a record: the value, then what says of which row.
OF_RECORDS = frozenset({"lag", "lead", "nth_value"})
#: Functions of the rows in a frame; the others look at the whole partition.
FRAMED = frozenset({"first_value", "last_value", "nth_value"})

_BOUND = r"(?:current row|(?:unbounded|\d+|'[^']*') (?:preceding|following))"
_FRAME = (
    rf"(?: (?P<units>rows|range|groups) between (?P<start>{_BOUND}) and (?P<end>{_BOUND})"
    r"(?: exclude (?P<exclude>current row|group|ties))?)?"
)
_PLAIN = re.compile(
    r"(?P<func>\w+)\[(?P<nulls>ignore_nulls=true, )?order_by=\[(?P<order>[^\]]*)\]" + _FRAME + r"\]"
)
_WRAPPED = re.compile(r"window_agg\[(?P<func>.+) order_by=\[(?P<order>[^\]]*)\]" + _FRAME + r"\]")


@dataclass(frozen=True)
class Frame:
    """A frame between two bounds.

    Attributes:
        start, end: how many rows or groups from the current one; None is unbounded. Where there is a distance, only the sign counts.
        units: rows, range or groups.
        exclude: what is left out: nothing, or current row, group, ties.
        distances: of RANGE, each bound's distance as a text in quotes; empty where it has none.
    """

    start: int | None
    end: int | None
    units: str = "rows"
    exclude: str = ""
    distances: tuple[str, str] = ("", "")

    @property
    def is_empty(self) -> bool:
        """Whether no row can lie in it."""
        return self.start is not None and self.end is not None and self.start > self.end

    @property
    def is_plain(self) -> bool:
        """Whether every engine has it: no groups, no distances, nothing left out."""
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
    """A window function's key, taken apart.

    Attributes:
        func: its name, or the key of an aggregate.
        kind: ``scalar``, ``value`` or ``aggregate``.
        order: for each key of the order, whether it descends and whether NULLs come last.
        frame: None is the default: from the partition's beginning to the current row's last peer.
        ignore_nulls: whether rows whose argument is NULL are passed over.
    """

    func: str
    kind: str
    order: Order
    frame: Frame | None = None
    ignore_nulls: bool = False

    @property
    def key(self) -> str:
        """As `parse` reads it."""
        return self._spelled(self.func)

    def shown(self, wrapped: str) -> str:
        """As EXPLAIN prints it, an aggregate by the name `wrapped`."""
        return self._spelled(wrapped)

    def _spelled(self, func: str) -> str:
        order = ordered_key("", self.order)[1:-1]
        frame = "" if self.frame is None else f" {self.frame}"
        if self.kind == "aggregate":
            return f"window_agg[{func} {order}{frame}]"
        nulls = "ignore_nulls=true, " if self.ignore_nulls else ""
        return f"{func}[{nulls}{order}{frame}]"


@lru_cache(maxsize=1024)
def parse(key: str) -> WindowFunc | None:
    """A window function's key taken apart; None of any other key."""
    match = _WRAPPED.fullmatch(key)
    kind = "aggregate"
    if match is None:
        match = _PLAIN.fullmatch(key)
        if match is None or match["func"] not in WINDOW_FUNCTIONS:
            return None
        kind = "scalar" if match["func"] in SCALAR else "value"
    ordered = parse_ordered_key(f"x[order_by=[{match['order']}]]")
    assert ordered is not None
    frame = None
    if match["start"] is not None:
        frame = Frame(
            _bound(match["start"]),
            _bound(match["end"]),
            match["units"],
            match["exclude"] or "",
            (_distance(match["start"]), _distance(match["end"])),
        )
    nulls = kind == "value" and match["nulls"] is not None
    return WindowFunc(match["func"], kind, ordered[1], frame, nulls)


def _field(typ: SqlType, position: int) -> SqlType:
    return typ.fields[position][1].type


def argument_type(window: WindowFunc, payload: SqlType) -> SqlType:
    """The type of a value or aggregate function's argument, by its payload's."""
    given = _field(payload, 1)
    return _field(given, 0) if window.func in OF_RECORDS else given


def original_type(window: WindowFunc, payload: SqlType) -> SqlType:
    """The type of the record of the original row."""
    if window.kind != "scalar":
        return _field(payload, 0)
    assert payload.element is not None
    return payload.element


def _result(
    window: WindowFunc, find: Callable[[str], AggregateFunc]
) -> Callable[[Sequence[SqlType]], SqlType]:
    def rule(args: Sequence[SqlType]) -> SqlType:
        payload = _field(args[0], 0)
        if window.kind == "scalar":
            typ = SCALAR[window.func]
        elif window.kind == "value":
            typ = argument_type(window, payload)
        else:
            typ = find(window.func).result_type([argument_type(window, payload)])
        row = original_type(window, payload)
        fields = (("f1", ColumnType(typ)), ("f2", ColumnType(row, nullable=False)))
        return SqlType("list", element=SqlType("record", fields=fields))

    return rule


def aggregate(key: str, find: Callable[[str], AggregateFunc]) -> AggregateFunc | None:
    """The row of a window function's key; None of any other key. `find`: gives the aggregate of a key."""
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
