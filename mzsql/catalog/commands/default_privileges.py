"""Default privileges: commands that record what is granted on future objects, and apply it when they are created.

Promise: pure functions. A default applies to objects that a role creates from then on, in a schema or database where
one is named. As with all privileges here nothing is refused for lack of one. Initially PUBLIC has USAGE on all types,
which can be revoked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import msgspec

from mzsql.catalog.change import NOTHING, Change, Owned, entry
from mzsql.catalog.commands.privileges import (
    PUBLIC,
    changed_modes,
    granted_as,
    kind_of,
    letters,
    merged_with,
    word_of,
)
from mzsql.catalog.objects import (
    FIRST_ID,
    Database,
    DefaultPrivilege,
    Index,
    Object,
    Privilege,
    Role,
    Schema,
    number,
)
from mzsql.catalog.state import CatalogState, applied
from mzsql.frontend.kinds import KINDS

#: What everybody may use from the start.
_INITIAL = tuple(
    DefaultPrivilege(PUBLIC, kind.name, PUBLIC, letters(kind.name)) for kind in KINDS if kind.usable
)


def of_role(role: Role) -> tuple[DefaultPrivilege, ...]:
    """The default privileges recorded with a role."""
    if role.default_privileges is not None:
        return role.default_privileges
    return _INITIAL if role.id == FIRST_ID else ()


def default_privileges(state: CatalogState) -> Iterator[DefaultPrivilege]:
    """All default privileges, except those for dropped schemas and databases."""
    schemas = {one.id for one in state.schemas.values()}
    for role in sorted(state.roles.values(), key=lambda one: number(one.id)):
        for one in of_role(role):
            there = one.database is None or one.database in state.databases
            if there and (one.schema is None or one.schema in schemas):
                yield one


def alter_default(
    state: CatalogState, altered: Sequence[DefaultPrivilege], *, revoke: bool
) -> Change:
    """Grant or revoke each of these default privileges."""
    change = NOTHING
    for new in altered:
        then = applied(state, change)
        holder = then.roles[FIRST_ID if new.role == PUBLIC else new.role]
        known = {one.place: one for one in of_role(holder)}
        had = known[new.place].modes if new.place in known else ""
        modes = changed_modes(had, new.modes, revoke=revoke)
        known[new.place] = msgspec.structs.replace(new, modes=modes)
        left = tuple(one for one in known.values() if one.modes)
        change |= entry(holder.id, msgspec.structs.replace(holder, default_privileges=left))
    return change


def granted_ahead(state: CatalogState, change: Change) -> Change:
    """A change, with default privileges applied to the objects that it creates."""
    defaults = tuple(default_privileges(state))
    if defaults == _INITIAL:
        return change
    then = applied(state, change)
    for field in ("items", "schemas", "databases", "clusters"):
        there = getattr(state, field)
        for key, new in getattr(change, field).items():
            if new is None or key in there or isinstance(new, Index) or new.privileges is not None:
                continue
            change |= entry(key, _granted(then, new, defaults))
    return change


def _granted(state: CatalogState, made: Owned, defaults: Collection[DefaultPrivilege]) -> Owned:
    kind = kind_of(made)
    database, schema = _place(state, made)
    found: tuple[Privilege, ...] = (Privilege(made.owner, made.owner, letters(kind)),)
    alike = granted_as(made)
    for one in defaults:
        here = one.database in (None, database) and one.schema in (None, schema)
        if here and one.object_type == alike and one.role in (PUBLIC, made.owner):
            modes = "".join(letter for letter in one.modes if letter in letters(kind))
            new = Privilege(one.grantee, made.owner, modes)
            found = merged_with(found, new, revoke=False)
    return msgspec.structs.replace(made, privileges=found)


def _place(state: CatalogState, made: Owned) -> tuple[str | None, str | None]:
    """The ids of the database and the schema that something is in."""
    if isinstance(made, Object):
        found = state.schema(made.database, made.schema)
        return (None, None) if found is None else (found[1].database, found[1].id)
    return (made.database, None) if isinstance(made, Schema) else (None, None)


def without_roles(state: CatalogState, ids: Collection[str]) -> Change:
    """The change that removes the default privileges granted to some roles, and those on objects that they create."""
    change = NOTHING
    for role in state.roles.values():
        known = of_role(role)
        left = tuple(one for one in known if not {one.role, one.grantee} & set(ids))
        if left != known:
            change |= entry(role.id, msgspec.structs.replace(role, default_privileges=left))
    return change


def granted_ahead_to(state: CatalogState, role: Role) -> list[str]:
    """Descriptions of the default privileges granted to a role, or on objects that it creates."""
    found = []
    for one in default_privileges(state):
        what = f"default privileges on {one.object_type.upper()}S"
        if one.role == role.id:
            found.append(f"{what} created by {role.name}")
        if one.grantee == role.id:
            found.append(f"{what} granted to {role.name}")
    return list(dict.fromkeys(found))


def default_rows(state: CatalogState) -> Iterator[tuple[str | None, ...]]:
    """The rows of mz_default_privileges."""
    for one in default_privileges(state):
        yield one.role, one.database, one.schema, one.object_type, one.grantee, one.modes


def named_default_privileges(state: CatalogState) -> Iterator[tuple[str | None, ...]]:
    """The rows of mz_show_default_privileges: each privilege with names instead of ids."""
    names = {role.id: role.name for role in state.roles.values()} | {PUBLIC: "PUBLIC"}
    schemas = {one.id: one for one in state.schemas.values()}
    databases: dict[str, Database] = dict(state.databases)
    for one in default_privileges(state):
        schema = None if one.schema is None else schemas[one.schema]
        database = one.database if schema is None else schema.database
        for letter in one.modes:
            yield (
                names.get(one.role),
                None if database is None else databases[database].name,
                None if schema is None else schema.name,
                one.object_type,
                names.get(one.grantee),
                word_of(letter),
            )
