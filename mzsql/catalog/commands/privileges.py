"""Privileges: commands that record grants, pure functions from a state to a `Change`, and the rows that show them.

Promise: privileges are recorded and shown, but never enforced, since whoever can reach the stores can read everything
in them. Until something is granted on an object its owner has all privileges, and everybody may use a type.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import msgspec

from mzsql.catalog.change import NOTHING, Change, Owned, entry
from mzsql.catalog.commands.clusters import drop_clusters
from mzsql.catalog.commands.items import drop_items
from mzsql.catalog.commands.roles import role_named
from mzsql.catalog.commands.schemas import drop_database, drop_schemas
from mzsql.catalog.objects import (
    FIRST_ID,
    SYSTEM_OWNER,
    Cluster,
    Database,
    Index,
    Object,
    Privilege,
    Role,
    Schema,
    number,
)
from mzsql.catalog.state import CatalogState, applied
from mzsql.frontend.kinds import KIND
from mzsql.frontend.parse.privileges import PRIVILEGES
from mzsql.frontend.plan.privileges import grantable

#: The id of PUBLIC.
PUBLIC = "p"
#: The privileges on system relations, and on system schemas and types.
READABLE = [f"{SYSTEM_OWNER}=r/{SYSTEM_OWNER}", f"=r/{SYSTEM_OWNER}"]
USABLE = [f"{SYSTEM_OWNER}=U/{SYSTEM_OWNER}", f"=U/{SYSTEM_OWNER}"]
_LETTERS = "".join(PRIVILEGES.values())
_WORDS = {letter: word for word, letter in PRIVILEGES.items()}


def letters(kind: str) -> str:
    """The letters of all privileges that exist on a kind of thing."""
    return "".join(PRIVILEGES[word] for word in grantable(kind))


def kind_of(one: Owned) -> str:
    """A thing's kind as GRANT names it."""
    return one.noun if isinstance(one, Object) else type(one).__name__.lower()


def granted_as(one: Owned) -> str | None:
    """The kind that GRANT and default privileges name a thing by: TABLE is any relation; None: it has no privileges."""
    return KIND[kind_of(one)].granted_as


def privileges_of(one: Owned) -> tuple[Privilege, ...]:
    """The recorded privileges on a thing, or its initial ones."""
    if one.privileges is not None:
        return one.privileges
    kind = kind_of(one)
    own = Privilege(one.owner, one.owner, letters(kind))
    everybody = Privilege(PUBLIC, one.owner, letters(kind))
    return (own, everybody) if KIND[kind].usable else (own,)


def grantee_id(state: CatalogState, name: str) -> str:
    """The id of a role that gets a privilege.

    Raises:
        UndefinedObject: there is no such role.
    """
    return PUBLIC if name == "public" else role_named(state, name).id


def changed(one: Owned, grantee: str, modes: str | None, *, revoke: bool) -> Owned:
    """A thing after a GRANT, or a REVOKE; ``modes`` None: ALL."""
    modes = letters(kind_of(one)) if modes is None else modes
    merged = merged_with(privileges_of(one), Privilege(grantee, one.owner, modes), revoke=revoke)
    return msgspec.structs.replace(one, privileges=merged)


def merged_with(
    known: tuple[Privilege, ...], new: Privilege, *, revoke: bool
) -> tuple[Privilege, ...]:
    """Privileges after granting, or revoking, some."""
    by_pair = {(p.grantee, p.grantor): p.modes for p in known}
    pair = (new.grantee, new.grantor)
    had = by_pair.get(pair, "")
    by_pair[pair] = changed_modes(had, new.modes, revoke=revoke)
    order = sorted(by_pair, key=lambda one: (one[0] == PUBLIC, _number(one[0]), _number(one[1])))
    return tuple(Privilege(*one, by_pair[one]) for one in order if by_pair[one])


def changed_modes(had: str, modes: str, *, revoke: bool) -> str:
    """The letters after granting, or revoking, some."""
    wanted = set(had) - set(modes) if revoke else set(had) | set(modes)
    return "".join(letter for letter in _LETTERS if letter in wanted)


def word_of(letter: str) -> str:
    """The keyword of a privilege's letter."""
    return _WORDS[letter]


def _number(gid: str) -> int:
    return 0 if gid == PUBLIC else number(gid)


def owned_by(one: Owned, owner: str) -> Owned:
    """A thing with another owner, who takes over what the old owner held and granted."""
    before = one.owner
    if one.privileges is None:
        return msgspec.structs.replace(one, owner=owner)
    merged: tuple[Privilege, ...] = ()
    for p in one.privileges:
        grantee = owner if p.grantee == before else p.grantee
        grantor = owner if p.grantor == before else p.grantor
        merged = merged_with(merged, Privilege(grantee, grantor, p.modes), revoke=False)
    return msgspec.structs.replace(one, owner=owner, privileges=merged)


def grant_on_system(
    state: CatalogState, grantee: str, modes: str | None, *, revoke: bool
) -> Change:
    """Grant or revoke system privileges; those of PUBLIC are recorded with the first role."""
    modes = letters("system") if modes is None else modes
    holder = state.roles.get(FIRST_ID if grantee == PUBLIC else grantee)
    assert holder is not None
    new = Privilege(grantee, FIRST_ID, modes)
    merged = merged_with(holder.system_privileges, new, revoke=revoke)
    return entry(holder.id, msgspec.structs.replace(holder, system_privileges=merged))


def system_privileges(state: CatalogState) -> Iterator[Privilege]:
    """All system privileges; the first role has every one."""
    yield Privilege(FIRST_ID, FIRST_ID, letters("system"))
    for role in sorted(state.roles.values(), key=lambda one: number(one.id)):
        yield from (p for p in role.system_privileges if p.grantee != FIRST_ID)


def holders(state: CatalogState) -> Iterator[tuple[str, Owned]]:
    """Everything with privileges: entry key and value."""
    for gid, item in state.items.items():
        if not isinstance(item, Index):
            yield gid, item
    yield from state.schemas.items()
    yield from state.databases.items()
    yield from state.clusters.items()


def owned(state: CatalogState, roles: Collection[str]) -> Iterator[tuple[str, Owned]]:
    """Everything that roles own, including indexes: entry key and value."""
    for key, one in holders(state):
        if one.owner in roles:
            yield key, one
    for index in state.of(Index):
        if index.owner in roles:
            yield index.id, index


def reassign(state: CatalogState, roles: Collection[str], to: str) -> Change:
    """Give what roles own to another role."""
    new = role_named(state, to).id
    ids = {role_named(state, role).id for role in roles}
    change = NOTHING
    for key, one in owned(state, ids):
        change |= entry(key, owned_by(one, new))
    return change


def drop_owned(state: CatalogState, roles: Collection[str], *, cascade: bool) -> Change:
    """Remove what roles own, and revoke what they were granted on the rest.

    Raises:
        DependentObjects: something of another role is in it or depends on it, and CASCADE was not given.
    """
    ids = {role_named(state, role).id for role in roles}
    found = [one for _, one in owned(state, ids)]
    databases = {one.id: one.name for one in state.databases.values()}
    items = [one.id for one in found if isinstance(one, Object)]
    change = drop_items(state, items, cascade=cascade)
    for one in found:
        then = applied(state, change)
        if isinstance(one, Cluster):
            change |= drop_clusters(then, [one.name], cascade=cascade)
        elif isinstance(one, Schema) and then.schema(databases[one.database], one.name):
            place = (databases[one.database], one.name)
            change |= drop_schemas(then, [place], cascade=cascade)
        elif isinstance(one, Database):
            change |= drop_database(then, one.name, cascade=cascade)
    for key, one in holders(applied(state, change)):
        if any(p.grantee in ids for p in one.privileges or ()):
            left = tuple(p for p in privileges_of(one) if p.grantee not in ids)
            change |= entry(key, msgspec.structs.replace(one, privileges=left))
    for gid in ids:
        if state.roles[gid].system_privileges:
            bare = msgspec.structs.replace(state.roles[gid], system_privileges=())
            change |= entry(gid, bare)
    return change


def granted_to(state: CatalogState, role: Role) -> list[str]:
    """Descriptions of what a role was granted or has granted, other than on what it owns."""
    found: list[str] = []
    for _, one in holders(state):
        name = one.full_name if isinstance(one, Object) else one.name
        if any(role.id in (p.grantee, p.grantor) for p in one.privileges or ()):
            found.append(f'privileges for {kind_of(one)} "{name}"')
    if role.system_privileges:
        found.append("privileges for the system")
    return found


def acl_text(privilege: Privilege) -> str:
    """A privilege as an ACL item: ``u2=ar/u1`` is grantee, letters, grantor; an empty grantee is PUBLIC."""
    grantee = "" if privilege.grantee == PUBLIC else privilege.grantee
    return f"{grantee}={privilege.modes}/{privilege.grantor}"


def acl(one: Owned) -> list[str]:
    """A thing's ACL as the catalog's relations show it."""
    return [acl_text(p) for p in privileges_of(one)]


def shown(state: CatalogState) -> Iterator[tuple[str | None, ...]]:
    """The rows of mz_show_all_privileges: each privilege with the names of grantor, grantee, database, schema and
    thing, the kind and the keyword.
    """
    names = {role.id: role.name for role in state.roles.values()} | {PUBLIC: "PUBLIC"}
    databases = {one.id: one.name for one in state.databases.values()}
    for _, one in holders(state):
        place: tuple[str | None, str | None] = (None, None)
        if isinstance(one, Object):
            place = (one.database, one.schema)
        elif isinstance(one, Schema):
            place = (databases.get(one.database), None)
        kind = one.kind if isinstance(one, Object) else kind_of(one)
        for p in privileges_of(one):
            for letter in p.modes:
                yield (
                    names.get(p.grantor),
                    names.get(p.grantee),
                    *place,
                    one.name,
                    kind,
                    _WORDS[letter],
                )
    for p in system_privileges(state):
        for letter in p.modes:
            yield (
                names.get(p.grantor),
                names.get(p.grantee),
                None,
                None,
                None,
                "system",
                _WORDS[letter],
            )
