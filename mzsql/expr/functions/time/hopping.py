"""`date_bin_hopping`: the starts of all windows that contain a timestamp.

Promise: windows have the given width and end at every hop from the origin, 1970 by default. A hop has `date_bin`'s
restrictions for a stride.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mzsql.expr.functions import epoch
from mzsql.expr.functions import sql as s
from mzsql.expr.functions.declare import Ast, of
from mzsql.expr.functions.table import Engine, ErrorRule, Sql, TableFunc
from mzsql.expr.functions.time import timestamps
from mzsql.repr.types import INTERVAL, ColumnType, RelationType, SqlType

#: Makes the array of a series of integers from (engine, start, stop, step, element for the index ``i0``).
Series = Callable[[Engine, Ast, Ast, Ast, Ast], Ast]


def _bin_args(args: Sequence[Sql]) -> list[Sql]:
    """The arguments for `date_bin`: the hop as stride, the timestamp, and the origin if given."""
    return [args[0], *args[2:]]


def _micros(arg: Sql, engine: Engine) -> Ast:
    return s.wide(epoch.micros(arg.ast, arg.typ.kind, engine))


def _rows(series: Series, kind: str) -> Callable[[Engine, Sequence[Sql], SqlType], Ast]:
    def rows(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        hop, width = timestamps.stride(args[0]), timestamps.stride(args[1])
        good = s.and_(s.gt(hop, s.num(0)), *(_no_months(arg) for arg in args[:2]))
        # The first start after the timestamp less the width, rounded down to a bin.
        origin = _micros(args[3], engine) if len(args) > 3 else s.wide(s.num(0))
        span = s.sub(s.add(_micros(args[2], engine), hop), origin)
        size = s.case((good, hop))
        rest = s.mod(s.add(s.mod(span, size), size), size)
        start = s.sub(s.add(s.sub(span, rest), origin), width)
        row = s.variable("hp0")
        first, stop, step = (s.field(row, name) for name in ("a", "z", "n"))
        micros = s.add(first, s.mul(s.wide(s.variable("i0")), step))
        body = epoch.timestamp_of_micros(micros, of(kind), engine)
        made = series(engine, first, stop, step, body)
        given = s.struct(a=s.wide(start), z=_micros(args[2], engine), n=s.wide(size))
        return s.let(given, "hp0", made, engine)

    return rows


def _no_months(arg: Sql) -> Ast:
    return s.eq(s.field(arg.ast, "months"), s.num(0))


def _rules() -> tuple[ErrorRule, ...]:
    def over(rule: ErrorRule) -> ErrorRule:
        condition, message = rule.condition, rule.message
        return ErrorRule(
            lambda engine, args, typ: condition(engine, _bin_args(args), typ),
            message
            if isinstance(message, str)
            else lambda engine, args, typ: message(engine, _bin_args(args), typ),
        )

    months = ErrorRule(
        lambda _engine, args, _typ: s.not_(_no_months(args[1])),
        "the width of a window cannot contain months or years",
    )
    return (*(over(rule) for rule in timestamps.bin_rules()), months)


def functions(series: Series) -> list[TableFunc]:
    """The overloads; ``series`` makes the array of a series."""
    found = []
    for kind in ("timestamp", "timestamptz"):
        for given in (3, 4):
            found.append(
                TableFunc(
                    key=f"date_bin_hopping_{kind}" + ("_origin" if given == 4 else ""),
                    name="date_bin_hopping",
                    args=(INTERVAL, INTERVAL, *([of(kind)] * (given - 2))),
                    names=("date_bin_hopping",),
                    output=RelationType((ColumnType(of(kind), False),)),
                    rows=_rows(series, kind),
                    errors=_rules(),
                )
            )
    return found
