"""The data source's options: the environment, the relation, and which part of it at what time.

Promise: invalid options are refused with a message and a hint before anything is opened. An option with a secret is
refused and not repeated, since Spark shows options to everyone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from pyspark.sql.types import StructField, StructType

from mzsql.location import shown_url
from mzsql.repr.booleans import boolean_of
from mzsql.repr.errors import InvalidParameter

_TIME = re.compile("[0-9]{1,19}")
_PLACES = ("env", "profile", "blob", "consensus", "oracle")
_TIMES = ("as_of", "from", "to")
_OPTIONS = frozenset({*_PLACES, *_TIMES, "relation", "path", "changes", "columns"})

#: The options that name an environment, sorted by name.
Locations: TypeAlias = "tuple[tuple[str, str], ...]"


@dataclass(frozen=True)
class Target:
    """What the options name.

    Attributes:
        locations: the environment.
        relation: the relation's name.
        as_of: the time to read at; None: a fresh one.
        changes: whether to read the changes instead of the contents.
        first, last: the times of the first and the last changes; None: from the contents on, up to a fresh timestamp.
        columns: the names of the columns; None: all.
    """

    locations: Locations
    relation: str
    as_of: int | None = None
    changes: bool = False
    first: int | None = None
    last: int | None = None
    columns: tuple[str, ...] | None = None

    def refuse(self, what: str, *names: str) -> None:
        """Refuse options that do not apply to the operation.

        Raises:
            InvalidParameter: one of them is set.
        """
        given = {
            "as_of": self.as_of is not None,
            "changes": self.changes,
            "from": self.first is not None,
            "to": self.last is not None,
            "columns": self.columns is not None,
        }
        for name in names:
            if given[name]:
                raise InvalidParameter(f"option {name} does not go with {what}")


#: The key in the first column's metadata that has the options.
_METADATA = "mzsql"


def with_options(schema: StructType, options: Mapping[str, str]) -> StructType:
    """A schema that carries the options it was made of: for a table in its catalog, Spark does not pass the options to
    a Python data source, but its columns with their metadata.
    """
    if not schema.fields:
        return schema
    first = schema.fields[0]
    told = {key.lower(): text for key, text in options.items() if key.lower() in _OPTIONS}
    metadata = {**first.metadata, _METADATA: told}
    named = StructField(first.name, first.dataType, first.nullable, metadata)
    return StructType([named, *schema.fields[1:]])


def options_in(schema: StructType) -> dict[str, str]:
    """The options that a schema carries; empty where it carries none."""
    found = schema.fields[0].metadata.get(_METADATA) if schema.fields else None
    return dict(found) if isinstance(found, Mapping) else {}


#: What Spark passes besides the options when a table is created in its catalog.
_OF_TABLES = frozenset(
    {"provider", "owner", "comment", "location", "external", "is_managed_location", "collation"}
)
_TWICE = "option."


def target(options: Mapping[str, str]) -> Target:
    """What the options name.

    Raises:
        InvalidParameter: an option is missing, unknown or malformed.
    """
    given = {key.lower(): value for key, value in options.items()}
    given = {k: v for k, v in given.items() if not (k in _OF_TABLES or k.startswith(_TWICE))}
    unknown = sorted(set(given) - _OPTIONS)
    if unknown:
        raise InvalidParameter(
            f"unknown option {unknown[0]!r} of the data source mzsql",
            hint=f"It knows {', '.join(sorted(_OPTIONS))}.",
        )
    relation = given.get("relation") or given.get("path")
    if not relation:
        raise InvalidParameter(
            "the data source mzsql needs a relation",
            hint='Name it as in load("public.orders"), or with option("relation", "public.orders").',
        )
    locations = {key: given[key] for key in _PLACES if key in given}
    secret = next((key for key, place in locations.items() if shown_url(place) != place), None)
    if secret is not None:
        raise InvalidParameter(
            f"option {secret} holds a secret, and Spark shows options to everyone: {shown_url(locations[secret])}",
            hint="Write the URLs into a profile (mzsql.toml, or variables such as MZSQL_PROFILE_PROD_CONSENSUS) and name it with "
            'option("profile", "prod").',
        )
    if not locations:
        raise InvalidParameter(
            "the data source mzsql needs an environment",
            hint='Name its directory with option("env", "/path/to/env"), or a profile with option("profile", "prod").',
        )
    changes = boolean_of(given.get("changes", "false"))
    if changes is None:
        raise InvalidParameter(
            f"option changes must be true or false, not {given['changes'][:40]!r}"
        )
    columns = given.get("columns")
    found = Target(
        tuple(sorted(locations.items())),
        relation,
        *(_time(given, "as_of"), changes, _time(given, "from"), _time(given, "to")),
        None if columns is None else _names(columns),
    )
    if found.changes:
        found.refuse("changes", "as_of")
    return found


def _time(given: Mapping[str, str], option: str) -> int | None:
    text = given.get(option)
    if text is None:
        return None
    if not (_TIME.fullmatch(text.strip()) and int(text) < 2**63 - 1):
        raise InvalidParameter(
            f"option {option} must be a time in milliseconds since 1970, not {text[:40]!r}"
        )
    return int(text)


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if not all(names) or len(set(names)) < len(names):
        raise InvalidParameter(
            f"option columns must be different names with commas between them, not {text[:80]!r}"
        )
    return names
