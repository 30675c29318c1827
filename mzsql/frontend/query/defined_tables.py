"""Table functions that are queries: ``aclexplode(aclitem[])``, ``mz_resolve_object_name('regclass', 'a.b')``.

Promise: a call stands for the query over its arguments, which are computed once, in the scope of the call, whatever names the query
uses. It reads the catalog at the statement's timestamp. In ROWS FROM, and beside other table functions of a select list, there is none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlglot import expressions as exp

from mzsql.frontend.parse.privileges import PRIVILEGES
from mzsql.frontend.scalar.coerce import NO_OVERLOAD, Typed, plain_name
from mzsql.frontend.scalar.defined import filled, written_type
from mzsql.frontend.scalar.nodes import position_of
from mzsql.repr import types as t
from mzsql.repr.errors import UndefinedFunction
from mzsql.repr.types import SqlType


@dataclass(frozen=True)
class DefinedTable:
    """The arguments' types, which the query knows as the columns ``a1``, ``a2``, … of ``given``, and the query."""

    args: tuple[SqlType, ...]
    sql: str


_LETTERS = ", ".join(
    f"('{word}', '{letter}', {place})" for place, (word, letter) in enumerate(PRIVILEGES.items())
)
#: One row for each privilege of each item.
_EXPLODED = f"""SELECT {{grantor}} AS grantor, {{grantee}} AS grantee, p.word AS privilege_type,
        position(p.letter || '*' IN i.letters) > 0 AS is_grantable
    FROM (
        SELECT split_part(x.item, '/', 2) AS grantor, split_part(x.item, '=', 1) AS grantee,
            split_part(split_part(x.item, '=', 2), '/', 1) AS letters
        FROM (SELECT unnest(given.a1)::text AS item) AS x
    ) AS i CROSS JOIN (VALUES {_LETTERS}) AS p (word, letter, place)
    WHERE position(p.letter IN i.letters) > 0"""
#: What a name of a kind of objects means: of those it fits, the one that the session's path finds first.
_RESOLVED = """SELECT o.id, o.oid, o.schema_id, o.name, o.type, o.owner_id, o.cluster_id, o.privileges
    FROM (
        SELECT n.parts[3] AS item, coalesce(n.parts[1], current_database()) AS database,
            CASE WHEN n.parts[2] IS NULL THEN pg_catalog.current_schemas(true) ELSE ARRAY[n.parts[2]] END AS path
        FROM (SELECT mz_internal.mz_normalize_object_name(given.a2) AS parts) AS n
    ) AS w
    JOIN mz_catalog.mz_objects AS o ON o.name = w.item
    JOIN mz_catalog.mz_schemas AS s ON s.id = o.schema_id
    LEFT JOIN mz_catalog.mz_databases AS d ON d.id = s.database_id
    WHERE array_position(w.path, s.name) IS NOT NULL AND coalesce(d.name = w.database, true)
        AND CASE given.a1
            WHEN 'regclass' THEN o.type NOT IN ('function', 'type', 'secret', 'connection')
            WHEN 'regproc' THEN o.type = 'function'
            WHEN 'regtype' THEN o.type = 'type'
            ELSE false END
    ORDER BY array_position(w.path, s.name) LIMIT 1"""
TABLES: Mapping[str, DefinedTable] = {
    "aclexplode": DefinedTable(
        (SqlType("array", element=t.ACLITEM),),
        _EXPLODED.format(
            grantor="i.grantor::oid", grantee="coalesce(nullif(i.grantee, ''), '0')::oid"
        ),
    ),
    "mz_aclexplode": DefinedTable(
        (SqlType("array", element=t.MZ_ACLITEM),),
        _EXPLODED.format(grantor="i.grantor", grantee="coalesce(nullif(i.grantee, ''), 'p')"),
    ),
    "mz_resolve_object_name": DefinedTable((t.TEXT, t.TEXT), _RESOLVED),
}


def as_query(name: str, node: exp.Expr, args: Sequence[Typed]) -> exp.Select:
    """The query that a call means.

    Args:
        name: the function.
        node: the call.
        args: its arguments, for their types.

    Raises:
        UndefinedFunction: it has other arguments.
    """
    table = TABLES[name]
    types = [arg.typ for arg in args]
    if len(types) != len(table.args) or not all(map(_fits, types, table.args)):
        shown = ", ".join(map(plain_name, types))
        raise UndefinedFunction(
            f"function {name}({shown}) does not exist",
            position=position_of(node),
            hint=NO_OVERLOAD,
        )
    given = ", ".join(f"${number} AS a{number}" for number in range(1, len(args) + 1))
    cast = [
        exp.Cast(this=argument.copy(), to=written_type(typ))
        for argument, typ in zip(node.expressions, table.args, strict=True)
    ]
    whole = f"(SELECT f.* FROM (SELECT {given}) AS given, LATERAL ({table.sql}) AS f)"
    query = filled(whole, cast).find(exp.Select)
    assert query is not None
    return query


def _fits(given: SqlType, wanted: SqlType) -> bool:
    return given in (wanted, t.UNKNOWN) or {given.kind, wanted.kind} <= {"text", "varchar", "name"}
