"""Type names: from what a statement writes to the `SqlType`.

Promise: every spelling that PostgreSQL or Materialize accepts for a type we have is accepted; any other fails with
``type "x" does not exist`` and, where one is similar, its name.
"""

from __future__ import annotations

from sqlglot import expressions as exp

from mzsql.frontend.catalog import FullName, PartialName
from mzsql.frontend.names.named_types import NamedTypes, TypeLookup
from mzsql.frontend.names.type_depth import check_levels
from mzsql.repr import types as t
from mzsql.repr.errors import (
    InvalidParameter,
    SqlSyntaxError,
    UndefinedObject,
    Unsupported,
    alike,
)
from mzsql.repr.types import SqlType

_KINDS: dict[str, SqlType] = {
    "BOOLEAN": t.BOOLEAN,
    "SMALLINT": t.SMALLINT,
    "INT": t.INTEGER,
    "MEDIUMINT": t.INTEGER,
    "BIGINT": t.BIGINT,
    "FLOAT": t.REAL,
    "DOUBLE": t.DOUBLE,
    "DECIMAL": t.NUMERIC,
    "TEXT": t.TEXT,
    "VARCHAR": t.VARCHAR,
    "CHAR": SqlType("char", length=1),
    "BPCHAR": t.CHAR,
    "VARBINARY": t.BYTEA,
    "BINARY": t.BYTEA,
    "DATE": t.DATE,
    "TIME": t.TIME,
    "TIMESTAMP": t.TIMESTAMP,
    "TIMESTAMPNTZ": t.TIMESTAMP,
    "TIMESTAMPTZ": t.TIMESTAMPTZ,
    "INTERVAL": t.INTERVAL,
    "UUID": t.UUID,
    "JSONB": t.JSONB,
    "JSON": t.JSONB,
    **{name.upper(): typ for name, typ in t.RANGES.items()},
}
_NAMED: dict[str, SqlType] = {
    "uint2": t.UINT2,
    "uint4": t.UINT4,
    "uint8": t.UINT8,
    "mz_timestamp": t.MZ_TIMESTAMP,
    "bool": t.BOOLEAN,
    "int2": t.SMALLINT,
    "int4": t.INTEGER,
    "int8": t.BIGINT,
    "float4": t.REAL,
    "float8": t.DOUBLE,
    "real": t.REAL,
    "bytes": t.BYTEA,
    "bytea": t.BYTEA,
    "string": t.TEXT,
    "bpchar": t.CHAR,
    "oid": t.OID,
    "regclass": t.REGCLASS,
    "regproc": t.REGPROC,
    "regtype": t.REGTYPE,
    "name": t.NAME,
    "aclitem": t.ACLITEM,
    "mz_aclitem": t.MZ_ACLITEM,
    "int2vector": t.INT2VECTOR,
    "oidvector": t.OIDVECTOR,
    "numeric": t.NUMERIC,
    "json": t.JSONB,
    "jsonb": t.JSONB,
    **t.RANGES,
}
_SCHEMAS = frozenset({"pg_catalog", "mz_catalog"})
#: The types that PostgreSQL does not have.
_OURS = frozenset({"uint2", "uint4", "uint8", "mz_timestamp", "mz_aclitem", "list", "map"})
_SYNONYMS = {"INTEGER": "INT", "DEC": "DECIMAL", "FLOAT": "DOUBLE", "CHARACTER": "CHAR"}
_MAX_LENGTH = 10_485_760


def resolve_type(node: exp.DataType, named: TypeLookup | None = None) -> SqlType:
    """The type that a sqlglot type node means.

    Args:
        node: the node.
        named: resolves types that users created; None: those are unknown.

    Raises:
        UndefinedObject: there is no such type.
        InvalidParameter: a modifier is out of range.
    """
    if not isinstance(node, exp.DataType):
        # sqlglot has node classes of its own for PostgreSQL's object identifier types.
        return _named(str(node.this), node, named)
    kind = node.this
    name = kind.value if isinstance(kind, exp.DType) else str(kind)
    if name in ("ARRAY", "LIST"):
        (element,) = node.expressions or (None,)
        if not isinstance(element, exp.DataType):
            raise UndefinedObject('type "array" does not exist')
        return check_levels(SqlType(name.lower(), element=resolve_type(element, named)))
    if name == "MAP":
        if len(node.expressions) != 2:
            raise UndefinedObject('type "map" does not exist')
        key, value = node.expressions
        keys = resolve_type(key, named)
        if keys.kind != "text":
            raise SqlSyntaxError(f"map key type must be text, got {keys}")
        return check_levels(SqlType("map", element=resolve_type(value, named)))
    found = _KINDS.get(name)
    if found is None:
        spelled = node.args.get("kind") if kind is exp.DType.USERDEFINED else name.lower()
        if isinstance(spelled, exp.Dot) and spelled.this.name.lower() in _SCHEMAS:
            spelled = spelled.expression
        if isinstance(spelled, exp.Identifier) and spelled.name == "char":
            # Quoted, ``"char"`` is PostgreSQL's one-byte type; unquoted it is a keyword for character(n).
            return t.PG_CHAR
        text = spelled.name if isinstance(spelled, exp.Expr) else str(spelled)
        if isinstance(spelled, exp.Dot):
            found = None if named is None else named(node)
            text = ".".join(node.meta.get("parts") or (text,))
        found = found or _named(text, node, named)
    return _modified(found, node)


def builtin_type(name: PartialName) -> FullName | None:
    """The full name of the system's type that a name refers to, before any of users'; None where it refers to none."""
    text = name.item
    own_schema = name.schema is None or name.schema in _SCHEMAS
    if not own_schema or text != text.lower() or not (text in _OURS or _builtin(text) is not None):
        return None
    ours = text.removeprefix("_") in _OURS
    return FullName(None, "mz_catalog" if ours else "pg_catalog", text)


def _builtin(text: str) -> SqlType | None:
    low, upper = text.lower(), text.upper()
    return _NAMED.get(low) or _array_of(low) or _KINDS.get(_SYNONYMS.get(upper, upper))


def _named(text: str, node: exp.Expr, named: TypeLookup | None) -> SqlType:
    found = _builtin(text)
    if found is None and named is not None:
        found = named(node)
    if found is None:
        raise UndefinedObject(
            f'type "{text}" does not exist',
            position=_position(node),
            hint=_hint(text.lower(), named),
        )
    return found


def _hint(name: str, named: TypeLookup | None) -> str | None:
    """The type that is most like one that does not exist; of users' own, those that need no schema."""
    own = named.catalog.type_names() if isinstance(named, NamedTypes) else ()
    builtin = (*_NAMED, *(one.lower() for one in (*_KINDS, *_SYNONYMS)))
    return alike(name, dict.fromkeys((*own, *builtin)))


def _array_of(name: str) -> SqlType | None:
    """An array type by PostgreSQL's internal name, such as ``_int4``."""
    element = _NAMED.get(name[1:]) if name.startswith("_") else None
    element = {"_text": t.TEXT, "_char": t.PG_CHAR}.get(name, element)
    return None if element is None else SqlType("array", element=element)


def _position(node: exp.Expr) -> int | None:
    for part in node.find_all(exp.Identifier):
        start = part.meta.get("start")
        if start is not None:
            return int(start) + 1
    return None


def _modified(base: SqlType, node: exp.DataType) -> SqlType:
    params = [_number(p) for p in node.expressions if isinstance(p, exp.DataTypeParam)]
    if base.kind == "numeric":
        if not params:
            return base
        precision, scale = params[0], params[1] if len(params) > 1 else 0
        if not 1 <= precision <= 39:
            raise InvalidParameter(
                f"precision for type numeric must be between 1 and 39, not {precision}"
            )
        if not 0 <= scale <= precision:
            raise InvalidParameter(
                f"scale for type numeric must be between 0 and precision {precision}"
            )
        return SqlType("numeric", scale=scale)
    if base.kind in ("varchar", "char"):
        # ``char`` is ``char(1)``, but ``bpchar``, which is written without a length only, has any.
        length = params[0] if params else base.length
        if length is not None and not 1 <= length <= _MAX_LENGTH:
            raise InvalidParameter(
                f"length for type {t.type_name(SqlType(base.kind))} must be between 1 and {_MAX_LENGTH}"
            )
        return SqlType(base.kind, length=length)
    if params and base.kind in ("timestamp", "timestamptz", "time", "interval"):
        if not 0 <= params[0] <= 6:
            raise InvalidParameter("precision for type timestamp must be between 0 and 6")
        if params[0] != 6 and base.kind in ("time", "interval"):
            raise Unsupported(f"{t.type_name(base)} with a precision is not supported")
        return base if params[0] == 6 else SqlType(base.kind, length=params[0])
    if params and base.kind == "double":
        # FLOAT(n) has at least n bits of mantissa; no other name of this type takes a modifier.
        if len(params) > 1 or not 1 <= params[0] <= 53:
            raise InvalidParameter("precision for type float must be within ([1-53])")
        return t.REAL if params[0] <= 24 else base
    if params:
        raise InvalidParameter(f"type modifier is not allowed for type {t.type_name(base)!r}")
    return base


def _number(param: exp.DataTypeParam) -> int:
    text = param.this.name if isinstance(param.this, exp.Expr) else str(param.this)
    if not text.isdigit():
        raise InvalidParameter("type modifiers must be simple constants")
    return int(text)
