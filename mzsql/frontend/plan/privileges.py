"""Plans of GRANT and REVOKE of privileges.

Promise: a privilege that does not exist on this kind of thing is refused by name. The objects that ALL … IN means are
determined by the catalog when the plan is carried out.
"""

from __future__ import annotations

from collections.abc import Sequence

from mzsql.frontend.catalog import CatalogView
from mzsql.frontend.kinds import KIND
from mzsql.frontend.names.items import check_database, item_named
from mzsql.frontend.parse import catalog_statements as cs
from mzsql.frontend.parse import statements as st
from mzsql.frontend.plan import catalog_plans as cp
from mzsql.frontend.plan.catalog import target_of
from mzsql.frontend.plan.planners import Planners
from mzsql.repr.errors import SqlError

_SYSTEM = ("CREATEROLE", "CREATEDB", "CREATECLUSTER", "CREATENETWORKPOLICY")


def grantable(kind: str) -> tuple[str, ...]:
    """The privileges that exist on a kind of thing, or on the system; empty where there are none."""
    if kind == "system":
        return _SYSTEM
    return KIND[kind].privileges if kind in KIND else ()


def plan_privileges(statement: cs.Privileges, catalog: CatalogView) -> cp.PrivilegesPlan:
    """GRANT or REVOKE."""
    kind, within = statement.kind, statement.every
    roles = tuple(name.partial.item for name in statement.roles)
    if within is None:
        targets = tuple(_target(statement, i, catalog) for i in range(len(statement.names)))
        for target in targets or (cp.Target("system", ()),):
            _check(statement, target)
        return cp.PrivilegesPlan(statement.privileges, kind, targets, None, roles, statement.revoke)
    places = _places(within, statement.names, catalog)
    _check(statement, cp.Target(kind, ()))
    return cp.PrivilegesPlan(statement.privileges, kind, (), places, roles, statement.revoke)


def plan_default_privileges(
    statement: cs.DefaultPrivileges, catalog: CatalogView
) -> cp.DefaultPrivilegesPlan:
    """ALTER DEFAULT PRIVILEGES.

    Raises:
        SqlError: the kind of object lies in no schema or database that IN could name (0LP01).
    """
    within, kind = statement.within, statement.kind
    nowhere = kind in ("database", "cluster") or (kind, within) == ("schema", "schema")
    if within is not None and nowhere:
        raise SqlError(
            f"cannot use IN {within.upper()} clause when using GRANT/REVOKE ON {kind.upper()}S",
            position=statement.position,
            sqlstate="0LP01",
        )
    _check(statement, cp.Target(kind, ()))
    makers = statement.makers
    return cp.DefaultPrivilegesPlan(
        None if makers is None else tuple(name.partial.item for name in makers),
        _places(within, statement.places, catalog),
        statement.privileges,
        kind,
        tuple(name.partial.item for name in statement.roles),
        statement.revoke,
    )


def _places(
    within: str | None, names: Sequence[st.Name], catalog: CatalogView
) -> tuple[tuple[str, ...], ...]:
    """The full names of existing schemas or databases."""
    if within == "schema":
        return tuple(
            target_of("schema", name, catalog, if_exists=False, verb="grant on").name
            for name in names
        )
    for name in names if within == "database" else ():
        check_database(catalog, name.partial.item, name.position)
    return tuple((name.partial.item,) for name in names)


def _target(statement: cs.Privileges, i: int, catalog: CatalogView) -> cp.Target:
    name, kind = statement.names[i], statement.kind
    if kind == "table":
        # TABLE includes views and other relations.
        item = item_named(catalog, name)
        if item.id.startswith("s"):
            raise SqlError(
                f"system item '{item.name}' cannot be modified",
                position=name.position,
                sqlstate="42501",
            )
        kind = item.kind.replace("-", " ")
    return target_of(kind, name, catalog, if_exists=False, verb="grant on")


def _check(statement: cs.Privileges | cs.DefaultPrivileges, target: cp.Target) -> None:
    known = grantable(target.kind)
    unknown = [one for one in statement.privileges or () if one not in known]
    if unknown or not known:
        named = f' "{target}"' if target.name else ""
        raise SqlError(
            f"invalid privilege types {', '.join(unknown) or 'ALL'} for {target.kind.upper()}{named}",
            position=statement.position,
            sqlstate="0LP01",
        )


#: The planners of this family.
PLANNERS: Planners = {
    cs.Privileges: plan_privileges,
    cs.DefaultPrivileges: plan_default_privileges,
}
