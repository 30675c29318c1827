"""Commands on roles and their memberships: pure functions from a state to a `Change`."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import msgspec

from mzsql.catalog.change import Change
from mzsql.catalog.commands.items import fresh_ids
from mzsql.catalog.objects import SYSTEM_ROLES, Role
from mzsql.catalog.state import CatalogState
from mzsql.repr.errors import (
    DependentObjects,
    DuplicateObject,
    InvalidParameter,
    UndefinedObject,
    alike,
)


def create_role(state: CatalogState, name: str) -> Change:
    """Create a role.

    Raises:
        DuplicateObject: its name is taken.
    """
    if state.role(name) is not None:
        raise DuplicateObject(f"role '{name}' already exists")
    (gid,), counted = fresh_ids(state, "role", state.roles, 1)
    return counted | Change(roles={gid: Role(gid, name)})


def role_named(state: CatalogState, name: str) -> Role:
    """The role with this name.

    Raises:
        UndefinedObject: there is none.
        InvalidParameter: it is one of the system's, which nobody changes (42939).
    """
    found = state.role(name)
    if found is None and any(one.name == name for one in SYSTEM_ROLES):
        raise InvalidParameter(f'role name "{name}" is reserved', sqlstate="42939")
    if found is None:
        names = [one.name for one in state.roles.values()]
        raise UndefinedObject(f"unknown role '{name}'", hint=alike(name, names))
    return found


def drop_role(
    state: CatalogState, name: str, current: str, granted: Collection[str] = ()
) -> Change:
    """Remove a role that owns nothing, was granted nothing (``granted``) and is not the session's own (``current``).

    Raises:
        UndefinedObject: there is no such role.
        DependentObjects: the role is the session's own (55006), owns something or was granted something.
    """
    role = role_named(state, name)
    if name == current:
        raise DependentObjects("current role cannot be dropped", sqlstate="55006")
    owned = [f"owner of {one}" for one in _owned_by(state, role)]
    if owned or granted:
        raise DependentObjects(
            f'role "{name}" cannot be dropped because some objects depend on it',
            detail="\n".join([*owned, *granted]),
            hint="Give them another owner: ALTER … OWNER TO …, and REVOKE what was granted.",
        )
    left = {
        other.id: msgspec.structs.replace(
            other, member_of=tuple(r for r in other.member_of if r != role.id)
        )
        for other in state.roles.values()
        if role.id in other.member_of
    }
    return Change(roles={role.id: None, **left})


def _owned_by(state: CatalogState, role: Role) -> Iterator[str]:
    for item in state.items.values():
        if item.owner == role.id:
            yield f'{item.noun} "{item.full_name}"'
    for cluster in state.clusters.values():
        if cluster.owner == role.id:
            yield f'cluster "{cluster.name}"'
    for schema in state.schemas.values():
        if schema.owner == role.id:
            yield f'schema "{schema.name}"'
    for database in state.databases.values():
        if database.owner == role.id:
            yield f'database "{database.name}"'


def grant(state: CatalogState, role: str, member: str, *, revoke: bool) -> Change:
    """Make a role a member of another, or end that; a circle is refused.

    Raises:
        UndefinedObject: there is no such role.
        DuplicateObject: ``member`` is itself a group that ``role`` belongs to, so memberships would be
            circular (0LP01).
    """
    group, one = role_named(state, role), role_named(state, member)
    rest = tuple(r for r in one.member_of if r != group.id)
    if not revoke:
        if one.id in _memberships(state, group):
            raise DuplicateObject(
                f'role "{role}" is a member of role "{member}"',
                hint="Memberships cannot be circular.",
                sqlstate="0LP01",
            )
        rest = (*rest, group.id)
    return Change(roles={one.id: msgspec.structs.replace(one, member_of=rest)})


def _memberships(state: CatalogState, role: Role) -> set[str]:
    """The role itself and all roles that it is a direct or indirect member of."""
    found: set[str] = set()
    pending = [role.id]
    while pending:
        gid = pending.pop()
        if gid not in found and gid in state.roles:
            found.add(gid)
            pending += state.roles[gid].member_of
    return found
