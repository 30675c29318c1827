"""ALTER SYSTEM and ALTER ROLE … SET: system variables and defaults of sessions; pure functions from a state to a
`Change`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from mzsql.catalog.change import Change
from mzsql.catalog.commands.items import allocate
from mzsql.catalog.commands.roles import role_named
from mzsql.catalog.settings import (
    TIMESTAMP_ORACLE,
    is_foreign,
    path_element,
    system_value,
    value_for,
    variable,
)
from mzsql.catalog.state import CatalogState
from mzsql.repr.errors import InvalidParameter


def alter_system(state: CatalogState, name: str, values: Sequence[str] | None) -> Change:
    """ALTER SYSTEM SET, or RESET where ``values`` is None; ``all`` resets every variable.

    Raises:
        UndefinedObject: there is no such variable.
        InvalidParameter: it cannot be set, or not to that.
    """
    changed: dict[str, str | None]
    if name == "all":
        changed = dict.fromkeys(state.settings)
    elif is_foreign(name) or values is None:
        if not (is_foreign(name) or name in state.settings):
            variable(name)
        # An older version may have stored a value under this meaningless name: remove it.
        changed = dict.fromkeys({name} & state.settings.keys())
    else:
        given = map(path_element, values) if name == "search_path" else values
        changed = {name: value_for(name, tuple(given))}
    change = Change(settings=changed)
    if TIMESTAMP_ORACLE in changed:
        after = {**state.settings, **{n: v for n, v in changed.items() if v is not None}}
        if changed[TIMESTAMP_ORACLE] is None:
            del after[TIMESTAMP_ORACLE]
        before = system_value(state.settings, TIMESTAMP_ORACLE)
        if before != system_value(after, TIMESTAMP_ORACLE):
            # Count the changes: a process that misses an intermediate value must still notice that the oracle was
            # switched.
            change |= allocate(state, TIMESTAMP_ORACLE)[1]
    return change


def alter_role(state: CatalogState, role: str, name: str, values: Sequence[str] | None) -> Change:
    """ALTER ROLE … SET, or RESET where ``values`` is None; ``all`` resets every variable of the role.

    Raises:
        UndefinedObject: there is no such role or variable.
        InvalidParameter: sessions cannot set it, or not to that.
    """
    found = role_named(state, role)
    kept = {} if name == "all" and values is None else dict(found.parameters)
    if name != "all" or values is not None:
        if variable(name).of_system:
            raise InvalidParameter(
                f'parameter "{name}" cannot be changed now',
                hint="It is the system's: ALTER SYSTEM SET changes it.",
                sqlstate="55P02",
            )
        kept.pop(name, None)
        if values is not None:
            given = map(path_element, values) if name == "search_path" else values
            kept[name] = value_for(name, tuple(given))
    after = msgspec.structs.replace(found, parameters=tuple(sorted(kept.items())))
    return Change(roles={found.id: after})


def session_defaults(state: CatalogState, role: str) -> Mapping[str, str]:
    """The settings with which a role's session starts: the system's, overridden by the role's."""
    found = state.role(role)
    if found is None or not found.parameters:
        return state.settings
    return {**state.settings, **dict(found.parameters)}
