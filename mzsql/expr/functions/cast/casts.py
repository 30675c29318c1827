"""Casts, and the contexts in which they apply.

Promise: a cast rounds as PostgreSQL's does (numerics half away from zero, floats half to even); values that do not fit
and texts that cannot be parsed are errors in Materialize's words. The contexts are PostgreSQL's: ``implicit`` casts
apply anywhere, ``assignment`` casts where a value is stored, ``explicit`` ones only where written. Texts are parsed
with patterns common to both engines, so that neither engine's leniency shows.
"""

from __future__ import annotations

from collections.abc import Sequence

from mzsql.expr.functions import epoch
from mzsql.expr.functions import sql as s
from mzsql.expr.functions.cast import acls_and_vectors, name_and_char, oids
from mzsql.expr.functions.cast_rows import ASSIGNMENT, EXPLICIT, IMPLICIT, Cast
from mzsql.expr.functions.cast_rows import cast_row as _cast
from mzsql.expr.functions.cast_rows import plain as _plain
from mzsql.expr.functions.declare import FLOATS, INTEGERS, SIGNED, STRINGS, Ast, failed, of
from mzsql.expr.functions.input import from_text
from mzsql.expr.functions.json import casts as jsonb_casts
from mzsql.expr.functions.number import casts as number_casts
from mzsql.expr.functions.number.arithmetic import in_range
from mzsql.expr.functions.number.casts import shown_out_of_range
from mzsql.expr.functions.number.numeric import at_scale, numeric, rescale
from mzsql.expr.functions.output.to_text import micros_of_day, to_text
from mzsql.expr.functions.table import Engine, ErrorRule, ScalarFunc, Sql
from mzsql.repr.types import PG_CHAR, VECTOR_ELEMENTS, SqlType, type_name, unnamed

_RANK = {IMPLICIT: 0, ASSIGNMENT: 1, EXPLICIT: 2}


def _texts() -> list[Cast]:
    """Casts to text, and between the kinds of text."""

    def shown(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
        return _shortened(to_text(args[0].ast, args[0].typ, engine), typ)

    kinds = [*SIGNED, "uint2", "uint4", "uint8", *FLOATS, "numeric", "boolean", "date", "time"]
    kinds.append("oid")
    kinds += ["timestamp", "timestamptz", "interval", "uuid", "bytea", "jsonb", "mz_timestamp"]
    casts = [_cast(kind, target, ASSIGNMENT, shown) for kind in kinds for target in STRINGS]

    def shortened(_engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
        return _shortened(_unpadded(args[0]), typ)

    def plain(_engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        return _unpadded(args[0])

    for source in STRINGS:
        for target in STRINGS:
            if target == "text":
                if source != "text":
                    casts.append(_cast(source, target, IMPLICIT, plain))
                continue
            casts.append(_cast(source, target, EXPLICIT, shortened))
            too_long = ErrorRule(
                _too_long, _too_long_message, lambda _args, typ: typ.length is not None
            )
            checked = _cast(
                source, target, ASSIGNMENT, shortened, too_long, key=f"{source}_to_{target}_checked"
            )
            casts.append(checked)
    return casts


def _unpadded(arg: Sql) -> Ast:
    """A char without its trailing blanks, which are no part of its value."""
    return s.call("RTRIM", arg.ast) if arg.typ.kind == "char" else arg.ast.copy()


def _shortened(ast: Ast, typ: SqlType) -> Ast:
    """The text truncated to the length of a varchar, or truncated or padded to that of a char; without trailing blanks for a
    char of any length, so that equal ones are the same text.
    """
    if typ.length is None:
        return s.call("RTRIM", ast) if typ.kind == "char" else ast
    cut = s.call("LEFT", ast, s.num(typ.length))
    return s.call("RPAD", cut, s.num(typ.length), s.text(" ")) if typ.kind == "char" else cut


def _too_long(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    # Blanks beyond the length are removed silently, as the SQL standard says.
    del engine
    rest = s.call("RTRIM", args[0].ast)
    return s.gt(s.call("LENGTH", rest), s.num(typ.length or 0))


def _too_long_message(_engine: Engine, _args: Sequence[Sql], typ: SqlType) -> Ast:
    return s.text(f"value too long for type {type_name(typ)}")


def _times() -> list[Cast]:
    def at_midnight(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
        return epoch.midnight(args[0].ast, typ, engine)

    def day(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
        if args[0].typ.kind == "timestamptz" and engine is Engine.DUCKDB:
            return s.cast(s.cast(args[0].ast, of("timestamp"), engine), typ, engine)
        return s.cast(args[0].ast, typ, engine)

    def clock(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        return micros_of_day(args[0].ast, args[0].typ.kind, engine)

    def as_interval(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
        value = s.struct(months=s.num(0), days=s.num(0), micros=args[0].ast)
        return s.case((s.is_not_null(args[0].ast), s.cast(value, typ, engine)))

    def rounded(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
        """Rounded to the type's precision, halves upwards."""
        unit = 10 ** (6 - (6 if typ.length is None else typ.length))
        micros = epoch.micros(args[0].ast, args[0].typ.kind, engine)
        half = s.add(s.wide(micros), s.wide(s.num(unit // 2)))
        whole = s.mul(s.wide(epoch.floor_div(half, unit)), s.wide(s.num(unit)))
        return epoch.timestamp_of_micros(whole, typ, engine)

    def of_interval(_engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        day = s.num(epoch.DAY_MICROS)
        return s.mod(s.add(s.mod(s.field(args[0].ast, "micros"), day), day), day)

    late = failed(at_midnight, "timestamp out of range")
    casts = [
        _cast("date", "timestamp", IMPLICIT, at_midnight, late, monotone=True),
        _cast("date", "timestamptz", IMPLICIT, at_midnight, late, monotone=True),
        _cast("timestamp", "timestamptz", IMPLICIT, _plain, monotone=True),
        _cast("timestamptz", "timestamp", ASSIGNMENT, _plain, monotone=True),
        _cast("timestamp", "date", ASSIGNMENT, day, monotone=True),
        _cast("timestamptz", "date", ASSIGNMENT, day, monotone=True),
        *(
            _cast(kind, kind, IMPLICIT, rounded, failed(rounded, "timestamp out of range"))
            for kind in ("timestamp", "timestamptz")
        ),
        _cast("timestamp", "time", ASSIGNMENT, clock),
        _cast("timestamptz", "time", ASSIGNMENT, clock),
        _cast("time", "interval", IMPLICIT, as_interval, monotone=True),
        _cast("interval", "time", ASSIGNMENT, of_interval),
    ]
    return casts + _mz_timestamps()


def _mz_timestamps() -> list[Cast]:
    """Casts from and to milliseconds since 1970, which are never negative."""
    unit = 1000

    def from_number(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        return in_range(rescale(args[0].ast, 0), "mz_timestamp", engine)

    def from_time(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        micros = epoch.micros(args[0].ast, args[0].typ.kind, engine)
        return in_range(epoch.floor_div(micros, unit), "mz_timestamp", engine)

    def to_time(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
        return epoch.timestamp_of_micros(s.mul(s.wide(args[0].ast), s.num(unit)), typ, engine)

    casts = [
        _cast(kind, "mz_timestamp", IMPLICIT, from_number, failed(from_number, shown_out_of_range))
        for kind in (*INTEGERS, "numeric")
    ]
    casts += [
        _cast(
            kind,
            "mz_timestamp",
            IMPLICIT,
            from_time,
            failed(from_time, shown_out_of_range),
            monotone=True,
        )
        for kind in ("date", "timestamp", "timestamptz")
    ]
    casts += [
        _cast(
            "mz_timestamp",
            kind,
            ASSIGNMENT,
            to_time,
            failed(to_time, "timestamp out of range"),
            monotone=True,
        )
        for kind in ("timestamp", "timestamptz")
    ]
    casts.append(_cast("mz_timestamp", "bigint", ASSIGNMENT, _plain, monotone=True))
    casts.append(_cast("mz_timestamp", "uint8", ASSIGNMENT, _plain, monotone=True))
    casts.append(
        _cast(
            "mz_timestamp",
            "numeric",
            ASSIGNMENT,
            at_scale,
            result=numeric(0),
            monotone=True,
        )
    )
    return casts


def _readings() -> list[Cast]:
    """Casts from each kind of text to everything that can be parsed."""
    return [
        _cast(source, target, EXPLICIT, parser.value, *parser.errors)
        for source in STRINGS
        for target, parser in from_text.PARSERS.items()
    ]


CASTS: tuple[Cast, ...] = (
    *jsonb_casts.CASTS,
    *number_casts.CASTS,
    *oids.CASTS,
    *_texts(),
    *_times(),
    *_readings(),
)
FUNCTIONS: tuple[ScalarFunc, ...] = tuple(
    cast.func for cast in (*CASTS, *name_and_char.CASTS, *acls_and_vectors.CASTS)
)

_BY_TYPES: dict[tuple[str, str], list[Cast]] = {}
for _row in CASTS:
    _BY_TYPES.setdefault((_row.source, _row.target), []).append(_row)


def find_cast(source: SqlType, target: SqlType, context: str) -> tuple[str, ...] | None:
    """The keys of the casts that, applied in order, convert ``source`` to ``target`` in ``context``.

    Returns:
        ``()`` if nothing needs doing, None if there is no such cast. The type of the last call is ``target``; if that
            is a numeric without a scale, it is the function's `result_type` for its argument.

    Args:
        source: the given type; ``unknown``, an untyped NULL or string, converts to anything without a function.
        target: the wanted type.
        context: ``implicit``, ``assignment`` or ``explicit``.
    """
    if source == target or source.kind == "unknown":
        return ()
    if target.kind == "text" and target.length is not None:
        return _to_short_text(source, target, context)
    if source in VECTOR_ELEMENTS and target.kind == "array":
        held = SqlType("array", element=VECTOR_ELEMENTS[source])
        rest = find_cast(held, target, context)
        return None if rest is None else (acls_and_vectors.TO_ARRAY[source], *rest)
    if source == PG_CHAR and target.kind == "integer":
        return (name_and_char.TO_CODE,) if context == EXPLICIT else None
    if target.kind in ("timestamp", "timestamptz") and target.length is not None:
        return _to_precision(source, target, context)
    if source.kind == target.kind:
        if source.kind == "numeric":
            # Constants of undeclared scale may have more digits than a column of the target.
            kept = target.scale in (None, source.scale) or (
                context == IMPLICIT and target.effective_scale == source.effective_scale
            )
            return () if kept else ("numeric_to_numeric",)
        if source.kind in ("varchar", "char"):
            longer = target.length is None or (
                source.kind == "varchar"
                and source.length is not None
                and source.length <= target.length
            )
            return () if longer else _length_cast(source, target, context)
        return _container_cast(source, target, context)
    if source.kind in (*_CONTAINERS, "range"):
        return _from_container(source, target, context)
    if source.kind in STRINGS and target.kind in ("array", "list", "map", "range"):
        return _reading(source, target, context)
    found = _length_cast(source, target, context)
    if found is not None or source.kind not in ("varchar", "char") or target.kind == "text":
        return found
    return None


def _to_short_text(source: SqlType, target: SqlType, context: str) -> tuple[str, ...] | None:
    """A cast by way of text, except from an integer to the ``"char"`` with that code."""
    if source.kind == "integer" and target == PG_CHAR:
        return (name_and_char.OF_CODE,) if context == EXPLICIT else None
    first = find_cast(source, of("text"), context)
    if first is None or context == IMPLICIT:
        return None
    known = name_and_char.KEYS | acls_and_vectors.KEYS
    return (*first, known[target.length])


_CONTAINERS = ("array", "list", "map", "record")


def _reading(source: SqlType, target: SqlType, context: str) -> tuple[str, ...] | None:
    """A cast from text to a container whose elements can be parsed; only explicit."""
    inner = target.element
    if context != EXPLICIT or inner is None or find_cast(of("text"), inner, EXPLICIT) is None:
        return None
    first = () if source.kind == "text" else (f"{source.kind}_to_text",)
    return (*first, f"text_to_{target.kind}")


def _container_cast(source: SqlType, target: SqlType, context: str) -> tuple[str, ...] | None:
    """A cast between containers of one kind whose elements or fields have casts; between two named types, only
    explicit.
    """
    named = {source.custom_id, target.custom_id} - {None}
    if context != EXPLICIT and len(named) > 1:
        return None
    if source.element == target.element and source.fields == target.fields:
        return ()
    if source.kind == "range":
        return None
    if source.kind == "record":
        if len(source.fields) != len(target.fields):
            return None
        pairs = [
            (old.type, new.type)
            for (_, old), (_, new) in zip(source.fields, target.fields, strict=True)
        ]
    elif source.element is None or target.element is None:
        return None
    else:
        pairs = [(source.element, target.element)]
    parts = [find_cast(old, new, context) for old, new in pairs]
    if None in parts:
        return None
    same = unnamed(source) == unnamed(target)
    return () if same else (f"{source.kind}_to_{target.kind}",)


def _from_container(source: SqlType, target: SqlType, context: str) -> tuple[str, ...] | None:
    """A cast to text in assignments or explicitly; from an array to a list explicitly."""
    if target.kind in STRINGS and context != IMPLICIT:
        first = (f"{source.kind}_to_text",)
        return first if target.kind == "text" else (*first, f"text_to_{target.kind}")
    if (source.kind, target.kind) != ("array", "list") or context != EXPLICIT:
        return None
    if source.element is None or target.element is None:
        return None
    if find_cast(source.element, target.element, context) is None:
        return None
    return ("array_to_list",)


def _to_precision(source: SqlType, target: SqlType, context: str) -> tuple[str, ...] | None:
    """A cast to the type, then to its precision."""
    first = find_cast(source, of(target.kind), context)
    if source.kind == target.kind:
        first = ()
    finer = source.length is None or source.length > (target.length or 0)
    if first is None or (source.kind == target.kind and not finer):
        return first
    return (*first, f"{target.kind}_to_{target.kind}")


def _length_cast(source: SqlType, target: SqlType, context: str) -> tuple[str, ...] | None:
    rows = _BY_TYPES.get((source.kind, target.kind), [])
    allowed = [row for row in rows if _RANK[row.context] <= _RANK[context]]
    if not allowed:
        return None
    # The strictest context allowed: an explicit cast to varchar truncates, an assignment refuses.
    return (max(allowed, key=lambda row: _RANK[row.context]).func.key,)
