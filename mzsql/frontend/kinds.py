"""The kinds of things that statements name: one table, which parsing, planning, privileges and SHOW read.

Promise: a kind's row says how statements write it and which of those that any kind might have it takes. Sinks, secrets,
connections and functions are there to be refused by name. The trade-off: what only few kinds have, such as the options
of clusters or the stages of EXPLAIN, stands where its statements are.
"""

from __future__ import annotations

from typing import NamedTuple

#: Words that stand in a statement one after the other.
Words = tuple[str, ...]


class Kind(NamedTuple):
    """A kind of things.

    Attributes:
        words: its keywords in statements, such as ``("MATERIALIZED", "VIEW")``.
        in_schema: whether its things are objects of a schema, with a name of up to three parts.
        made_by: ``users``, or ``system`` where users can make none; None: there are none here.
        only_comment: whether COMMENT alone names it.
        spark: whether Spark's SQL has the kind too.
        plural: the keywords of SHOW that list them; None: the kind's with an S.
        privileges: the privileges that GRANT knows on one.
        granted_as: the kind that GRANT and ALTER DEFAULT PRIVILEGES name it by; None: it has no privileges.
        usable: whether everybody has its privileges from the start.
        alters: the forms of ALTER that only some kinds have, as `mzsql.frontend.parse.catalog` names them: ``swap``,
            ``set schema``, ``set cluster``, ``retain history``, ``options``, ``attributes``.
    """

    words: Words
    in_schema: bool = True
    made_by: str | None = "users"
    only_comment: bool = False
    spark: bool = False
    plural: Words | None = None
    privileges: Words = ()
    granted_as: str | None = None
    usable: bool = False
    alters: Words = ()

    @property
    def name(self) -> str:
        """What messages call it: ``materialized view``."""
        return " ".join(self.words).lower()

    @property
    def listed(self) -> Words:
        """The keywords of SHOW that list its things: ``("MATERIALIZED", "VIEWS")``."""
        return self.plural or (*self.words[:-1], f"{self.words[-1]}S")


_READ = ("SELECT",)
_HELD = ("USAGE", "CREATE")
#: All kinds. The order is that of messages which list them; no kind stands before one whose words begin with its own.
KINDS = (
    Kind(
        ("MATERIALIZED", "VIEW"),
        privileges=_READ,
        granted_as="table",
        alters=("set cluster", "set schema", "retain history"),
    ),
    Kind(
        ("TABLE",),
        spark=True,
        privileges=("INSERT", "SELECT", "UPDATE", "DELETE"),
        granted_as="table",
        alters=("set schema", "retain history"),
    ),
    Kind(
        ("VIEW",),
        spark=True,
        privileges=_READ,
        granted_as="table",
        alters=("set schema", "retain history"),
    ),
    Kind(("COLUMN",), in_schema=False, only_comment=True, spark=True),
    Kind(("INDEX",), plural=("INDEXES",), alters=("set cluster", "retain history")),
    Kind(
        ("SCHEMA",),
        in_schema=False,
        spark=True,
        privileges=_HELD,
        granted_as="schema",
        alters=("swap",),
    ),
    Kind(("DATABASE",), in_schema=False, spark=True, privileges=_HELD, granted_as="database"),
    Kind(("CLUSTER", "REPLICA"), in_schema=False),
    Kind(
        ("CLUSTER",),
        in_schema=False,
        privileges=_HELD,
        granted_as="cluster",
        alters=("swap", "options"),
    ),
    Kind(("ROLE",), in_schema=False, alters=("attributes",)),
    Kind(("SOURCE",), made_by="system", privileges=_READ, granted_as="table"),
    Kind(("SINK",), made_by=None),
    Kind(("TYPE",), privileges=("USAGE",), granted_as="type", usable=True),
    Kind(("FUNCTION",), made_by=None, only_comment=True, spark=True),
    Kind(("CONNECTION",), made_by=None),
    Kind(("SECRET",), made_by=None),
)
#: A kind by its name.
KIND = {kind.name: kind for kind in KINDS}
#: What SHOW lists: things by their kind, all objects, and the parts of sources.
LISTED = (
    *(kind.listed for kind in KINDS if not kind.only_comment),
    ("OBJECTS",),
    ("SUBSOURCES",),
)
