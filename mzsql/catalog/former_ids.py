"""Ids of builtin relations that this build does not have, in what is stored.

Promise: an object depends on the builtin relations that its definition names, whichever build wrote it. Earlier builds numbered
builtin relations anew, a relation of a plugin has another id once its columns change, and a release may drop a relation, so a
stored id alone may mean nothing; the names in the definition last. What is read through a function alone has no name there, and
nothing is left of such a dependency. A relation of a plugin that is not installed here keeps the id that was stored. The first
change of the catalog by a process in charge stores the present ids (`DurableCatalog.transact`), so texts are looked at until then only.
"""

from __future__ import annotations

import contextlib

import msgspec

from mzsql.catalog.builtin import builtins, builtins_by_name
from mzsql.catalog.builtin_ids import of_the_system_catalog
from mzsql.catalog.objects import Object
from mzsql.frontend.definitions.references import system_relations
from mzsql.repr.errors import SqlError
from mzsql.repr.ids import GlobalId


def with_present_ids(item: Object) -> Object:
    """The object as it was stored, with what it depends on by the ids that are builtin relations' now."""
    unknown = {gid for gid in item.depends_on if gid[0] == "s" and gid not in builtins()}
    if not unknown:
        return item
    names: set[tuple[str, str]] = set()
    # A text that no longer parses is told of when the object is read.
    with contextlib.suppress(SqlError):
        names = system_relations(item.create_sql)
    known = builtins_by_name()
    kept = set(item.depends_on) - unknown
    if not names <= known.keys():
        kept |= {gid for gid in unknown if not of_the_system_catalog(gid)}
    found = {known[name].id for name in names & known.keys()}
    after: tuple[GlobalId, ...] = tuple(sorted(kept | found))
    return msgspec.structs.replace(item, depends_on=after)
