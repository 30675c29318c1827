"""Casts of object numbers: ``oid``, and ``regclass``, ``regproc`` and ``regtype``, which are written as names.

Promise: as in PostgreSQL and Materialize, an integer casts implicitly to these, and one of the name types to ``oid``;
the reverse happens in assignments. A negative integer becomes the number with the same bits. Names are resolved by the
planner (`mzsql.frontend`).
"""

from __future__ import annotations

from collections.abc import Sequence

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.cast_rows import ASSIGNMENT, IMPLICIT, Cast, cast_row, plain
from mzsql.expr.functions.declare import Ast, failed
from mzsql.expr.functions.number.arithmetic import in_range
from mzsql.expr.functions.table import Engine, Sql
from mzsql.repr.types import REGISTERED, SqlType

_BITS = 2**32


def _of_signed(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    wide = s.big(args[0].ast)
    bits = s.case((s.lt(wide, s.num(0)), s.add(wide, s.num(_BITS))), otherwise=wide)
    return s.cast(bits, typ, engine)


def _to_integer(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    wide = s.big(args[0].ast)
    high = s.gte(wide, s.num(_BITS // 2))
    return s.cast(s.case((high, s.sub(wide, s.num(_BITS))), otherwise=wide), typ, engine)


def _of_bigint(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    return in_range(args[0].ast, "oid", engine)


def _out_of_range(_engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    return s.concat(s.text('"'), s.string(args[0].ast), s.text('" OID out of range'))


def _casts() -> list[Cast]:
    casts = []
    for target in ("oid", *sorted(REGISTERED)):
        for source in ("smallint", "integer"):
            casts.append(cast_row(source, target, IMPLICIT, _of_signed))
        too_large = failed(_of_bigint, _out_of_range)
        casts.append(cast_row("bigint", target, IMPLICIT, _of_bigint, too_large))
        casts.append(cast_row("uint4", target, IMPLICIT, plain))
        casts.append(cast_row(target, "integer", ASSIGNMENT, _to_integer))
        casts.append(cast_row(target, "bigint", ASSIGNMENT, plain))
    for kind in sorted(REGISTERED):
        casts.append(cast_row(kind, "oid", IMPLICIT, plain))
        casts.append(cast_row("oid", kind, ASSIGNMENT, plain))
    return casts


CASTS: tuple[Cast, ...] = tuple(_casts())
