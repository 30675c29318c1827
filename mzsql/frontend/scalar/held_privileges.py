"""The functions that ask who may what: ``has_table_privilege(role, table, privilege)`` and its like.

Promise: privileges are not enforced, so the answer is true for what exists. As in PostgreSQL a role, an object or a privilege
that is named and does not exist is an error, and an object's OID that nothing has gives NULL; NULL where an argument is.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from mzsql.frontend.scalar.defined import Defined
from mzsql.repr import types as t
from mzsql.repr.types import SqlType


class _Kind(msgspec.Struct, frozen=True):
    """What is asked about: the relation that lists it, what messages call it, the privileges that there are on it, and how it
    is told.
    """

    relation: str
    noun: str
    privileges: tuple[str, ...]
    by: tuple[SqlType, ...] = (t.TEXT, t.OID)


_KINDS = {
    "table": _Kind(
        "mz_relations",
        "relation",
        ("SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER"),
    ),
    "column": _Kind("mz_relations", "relation", ("SELECT", "INSERT", "UPDATE", "REFERENCES")),
    "schema": _Kind("mz_schemas", "schema", ("CREATE", "USAGE")),
    "database": _Kind(
        "mz_databases",
        "database",
        ("CREATE", "USAGE", "CONNECT", "TEMPORARY", "TEMP"),
    ),
    "cluster": _Kind("mz_clusters", "cluster", ("CREATE", "USAGE"), by=(t.TEXT,)),
    "type": _Kind("mz_types", "type", ("USAGE",)),
    "function": _Kind("mz_functions", "function", ("EXECUTE",)),
    "connection": _Kind("mz_connections", "connection", ("USAGE",)),
    "secret": _Kind("mz_secrets", "secret", ("USAGE",)),
    "role": _Kind("mz_roles", "role", ("MEMBER", "USAGE", "SET")),
}
_OF_SYSTEM = ("CREATEROLE", "CREATEDB", "CREATECLUSTER", "CREATENETWORKPOLICY")


def held(kind: str) -> tuple[Defined, ...]:
    """A function's overloads: with and without a role, by name or OID of role and object; ``system`` has no object."""
    return tuple(_system() if kind == "system" else _on(_KINDS[kind]))


def _on(kind: _Kind) -> Iterator[Defined]:
    for role in ((), (t.TEXT,), (t.OID,)):
        at, privilege = f"${len(role) + 1}", f"${len(role) + 2}"
        for by in kind.by:
            args = (*role, by, t.TEXT)
            yield _strict(
                args, [*_checks(role), _known(privilege, kind.privileges)], _there(kind, by, at)
            )


def held_on_columns() -> tuple[Defined, ...]:
    """The overloads of ``has_column_privilege``: of a column by name or number, of a relation by name or OID."""
    return tuple(_on_columns(_KINDS["column"]))


def _on_columns(kind: _Kind) -> Iterator[Defined]:
    for role in ((), (t.TEXT,), (t.OID,)):
        at, column, privilege = (f"${len(role) + n}" for n in (1, 2, 3))
        for by in (t.TEXT, t.OID):
            oid = f"{at}::regclass::oid" if by == t.TEXT else at
            of = f"FROM mz_catalog.mz_columns AS c JOIN mz_catalog.mz_relations AS r ON r.id = c.id WHERE r.oid = {oid}"
            known = _known(privilege, kind.privileges)
            # Of no relation there are no names, and nothing is refused; cf. `_unknown`.
            missing = f"NOT (SELECT array_agg(c.name) {of}) @> ARRAY[{column}]"
            relation = f"{at}::regclass::text"
            told = f"""'column "' || {column} || '" of relation "' || {relation} || '" does not exist'"""
            refused = [*_checks(role), known, f"mz_internal.mz_raise_if({missing}, {told})"]
            yield _strict((*role, by, t.TEXT, t.TEXT), refused, _there(kind, by, at))
            numbered = f"(SELECT true {of} AND c.position = {column}::bigint LIMIT 1)"
            yield _strict((*role, by, t.SMALLINT, t.TEXT), [*_checks(role), known], numbered)


def _system() -> Iterator[Defined]:
    for role in ((), (t.TEXT,), (t.OID,)):
        privilege = _known(f"${len(role) + 1}", _OF_SYSTEM)
        yield _strict((*role, t.TEXT), [*_checks(role), privilege], "true")


def _strict(args: tuple[SqlType, ...], refused: list[str], value: str) -> Defined:
    """The value, after what refuses arguments; NULL where an argument is."""
    missing = " OR ".join(f"${n} IS NULL" for n in range(1, len(args) + 1))
    when = " ".join(f"WHEN {one} THEN NULL" for one in (missing, *refused))
    return Defined(args, f"CASE {when} ELSE {value} END", t.BOOLEAN)


def _checks(role: tuple[SqlType, ...]) -> list[str]:
    """What refuses a role's name. One that is given by its OID is not looked for, as in PostgreSQL."""
    if role != (t.TEXT,):
        return []
    return [_fails(f"$1 <> 'public' AND {_unknown('mz_roles', '$1')}", "$1", "role")]


def _there(kind: _Kind, by: SqlType, at: str) -> str:
    """Whether the object exists: true or, of an OID, NULL."""
    found = f"(SELECT true FROM mz_catalog.{kind.relation} WHERE {{key}} = {{value}} LIMIT 1)"
    if by == t.OID:
        return found.format(key="oid", value=at)
    if kind.relation == "mz_relations":
        # The cast refuses an unknown name, and takes qualified ones.
        return found.format(key="oid", value=f"{at}::regclass::oid")
    unknown = _unknown(kind.relation, _name(kind, at))
    return f"CASE WHEN {_fails(unknown, at, kind.noun)} THEN NULL ELSE true END"


def _unknown(relation: str, name: str) -> str:
    """Whether a relation of the catalog lists nothing of a name.

    All names are asked for together: of a subquery for each name the plan has a part in which it has found nothing yet,
    where what must not happen would happen. No object's name is empty; that one stands for a relation without rows.
    """
    names = f"SELECT name FROM mz_catalog.{relation} UNION ALL SELECT ''"
    return f"NOT (SELECT array_agg(name) FROM ({names}) AS n) @> ARRAY[({name})::text]"


def _name(kind: _Kind, at: str) -> str:
    """The name by which the catalog has an object that is told as PostgreSQL tells it."""
    match kind.noun:
        case "function":
            return f"btrim(split_part({at}, '(', 1))"  # any function of the name, whatever arguments are told
        case "type":
            return f"coalesce((SELECT t.name FROM mz_catalog.mz_types AS t WHERE t.oid = to_regtype({at})::oid LIMIT 1), {at})"
    return at


def _fails(condition: str, at: str, noun: str) -> str:
    message = f"""'{noun} "' || {at} || '" does not exist'"""
    return f"mz_internal.mz_raise_if({condition}, {message})"


def _known(at: str, privileges: tuple[str, ...]) -> str:
    """What refuses a list of privileges with one that the kind has not."""
    one = f"[[:space:]]*({'|'.join(privileges)})( +WITH +(GRANT|ADMIN) +OPTION)?[[:space:]]*"
    unknown = f"upper({at}) !~ '^{one}(,{one})*$'"
    return (
        f"""mz_internal.mz_raise_if({unknown}, 'unrecognized privilege type: "' || {at} || '"')"""
    )
