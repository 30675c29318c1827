"""Parsing statements about databases, schemas, clusters and roles, ALTER of anything that has a name, and COMMENT."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from mzsql.frontend.catalog import PartialName
from mzsql.frontend.kinds import KIND, KINDS, Words
from mzsql.frontend.parse import catalog_statements as cs
from mzsql.frontend.parse import statements as st
from mzsql.frontend.parse.named import OWN_KINDS, name_of, names_of, replica_name, schema_name
from mzsql.frontend.parse.options import (
    CLUSTER_OPTIONS,
    REPLICA_OPTIONS,
    option_list,
    options,
    retained,
)
from mzsql.frontend.parse.pieces import Pieces, Statements, each
from mzsql.frontend.parse.variables import reset_name, set_name, set_values
from mzsql.repr.errors import SqlSyntaxError, Unsupported

_ATTRIBUTES = (
    ("INHERIT",),
    ("NOINHERIT",),
    ("CREATECLUSTER",),
    ("NOCREATECLUSTER",),
    ("CREATEDB",),
    ("NOCREATEDB",),
    ("CREATEROLE",),
    ("NOCREATEROLE",),
    ("LOGIN",),
    ("NOLOGIN",),
    ("SUPERUSER",),
    ("NOSUPERUSER",),
    ("PASSWORD",),
)
#: What is in no schema and can be made and dropped.
_PLACES = tuple(
    kind.words
    for kind in KINDS
    if kind.made_by == "users" and not (kind.in_schema or kind.only_comment)
)
#: What may follow ALTER, though nothing of what the system makes can be altered.
_ALTERED = tuple(kind.words for kind in KINDS if kind.made_by is not None and not kind.only_comment)
_COMMENTED = tuple(kind.words for kind in KINDS)
_SETTING = (("SET",), ("RESET",))


# --- CREATE and DROP ------------------------------------------------------------------------------


def create_schema(pieces: Pieces) -> cs.CreateSchema:
    """CREATE SCHEMA, after these words.

    Raises:
        SqlSyntaxError: no name of a schema follows.
    """
    if_not_exists = pieces.if_not_exists()
    return cs.CreateSchema(pieces.source, schema_name(pieces), if_not_exists=if_not_exists)


def create_database(pieces: Pieces) -> cs.CreateDatabase:
    """CREATE DATABASE, after these words.

    Raises:
        SqlSyntaxError: no name follows.
    """
    if_not_exists = pieces.if_not_exists()
    return cs.CreateDatabase(pieces.source, pieces.plain_name(), if_not_exists=if_not_exists)


def create_role(pieces: Pieces) -> cs.CreateRole:
    """CREATE ROLE, after these words.

    Raises:
        SqlSyntaxError: no name follows, or an unknown attribute.
        Unsupported: the role is to have a password.
    """
    name = pieces.plain_name()
    pieces.take("WITH")
    return cs.CreateRole(pieces.source, name, _attributes(pieces))


def _attributes(pieces: Pieces) -> tuple[tuple[str, int], ...]:
    """The rest of the statement: attributes of a role, with their positions."""
    found: list[tuple[str, int]] = []
    while not pieces.at_end():
        position = pieces.position()
        attribute = pieces.expect_one(_ATTRIBUTES)
        if attribute == "password":
            raise Unsupported("passwords of roles are not supported", position=position)
        found.append((attribute.upper(), position))
    return tuple(found)


def create_cluster(pieces: Pieces) -> cs.CreateCluster:
    """CREATE CLUSTER, after these words.

    Raises:
        SqlSyntaxError: no name follows, or as by `options`.
        Unsupported: it has FEATURES.
    """
    if_not_exists = pieces.if_not_exists()
    name = pieces.plain_name()
    given = options(pieces, CLUSTER_OPTIONS)
    if pieces.word() == "FEATURES":
        raise Unsupported("FEATURES not supported for non-system users", position=pieces.position())
    return cs.CreateCluster(pieces.source, name, given, if_not_exists=if_not_exists)


def create_replica(pieces: Pieces) -> cs.CreateReplica:
    """CREATE CLUSTER REPLICA, after these words.

    Raises:
        SqlSyntaxError: no name of a replica follows, or as by `options`.
    """
    if_not_exists = pieces.if_not_exists()
    name = replica_name(pieces)
    given = options(pieces, REPLICA_OPTIONS)
    return cs.CreateReplica(pieces.source, name, given, if_not_exists=if_not_exists)


def drop(pieces: Pieces, kind: str) -> cs.DropNamed:
    """DROP of things that are in no schema, after the kind.

    Raises:
        SqlSyntaxError: no name of this kind follows.
    """
    if_exists = pieces.if_exists()
    names = names_of(pieces, kind)
    cascade: bool | None = None
    if kind in ("schema", "database", "cluster"):
        word = pieces.take_one((("CASCADE",), ("RESTRICT",)))
        cascade = None if word is None else word == "cascade"
    return cs.DropNamed(pieces.source, kind, names, if_exists, cascade)


# --- ALTER ----------------------------------------------------------------------------------------


def alter(pieces: Pieces) -> st.Statement:
    """ALTER of anything that has a name, after ALTER.

    Raises:
        SqlSyntaxError: no name follows, or a form of ALTER is not finished.
        Unsupported: there is no such form of ALTER for this kind of things.
    """
    position = pieces.position()
    kind = pieces.take_one(_ALTERED)
    if kind is not None and KIND[kind].made_by == "users":
        if_exists = pieces.if_exists()
        altered = Altered(kind, name_of(pieces, kind), if_exists)
        for form, words, parse in _FORMS:
            if (form is None or form in KIND[kind].alters) and pieces.take(*words):
                return parse(pieces, altered)
    what = "ALTER" if kind is None else f"this form of ALTER {kind.upper()}"
    raise Unsupported(
        f"{what} is not supported",
        position=position,
        hint="There are RENAME TO, SET SCHEMA, SET CLUSTER, SET (RETAIN HISTORY FOR …), SWAP WITH and OWNER TO.",
    )


class Altered(NamedTuple):
    """What an ALTER statement is about."""

    kind: str
    name: st.Name
    if_exists: bool


def _rename(pieces: Pieces, altered: Altered) -> cs.Rename:
    kind, name, if_exists = altered
    if kind in ("database", "role"):
        raise Unsupported(
            f"ALTER {kind.upper()} … RENAME TO is not supported", position=name.position
        )
    return cs.Rename(pieces.source, kind, name, pieces.identifier(), if_exists=if_exists)


def _set_owner(pieces: Pieces, altered: Altered) -> cs.SetOwner:
    kind, name, if_exists = altered
    return cs.SetOwner(pieces.source, kind, name, pieces.identifier(), if_exists=if_exists)


def _swap(pieces: Pieces, altered: Altered) -> cs.Swap:
    kind, name, if_exists = altered
    return cs.Swap(pieces.source, kind, name, name_of(pieces, kind), if_exists=if_exists)


def _set_schema(pieces: Pieces, altered: Altered) -> cs.SetSchema:
    kind, name, if_exists = altered
    return cs.SetSchema(pieces.source, kind, name, schema_name(pieces), if_exists=if_exists)


def _set_cluster(pieces: Pieces, altered: Altered) -> cs.SetCluster:
    kind, name, if_exists = altered
    return cs.SetCluster(pieces.source, kind, name, pieces.plain_name(), if_exists=if_exists)


def _set_retention(pieces: Pieces, altered: Altered) -> st.AlterRetain:
    """RETAIN HISTORY FOR …), after SET (."""
    kind, name, if_exists = altered
    pieces.expect("RETAIN", "HISTORY")
    text = retained(pieces)
    pieces.close()
    return st.AlterRetain(pieces.source, kind, name, text, if_exists)


def _reset_retention(pieces: Pieces, altered: Altered) -> st.AlterRetain:
    """RETAIN HISTORY), after RESET (."""
    kind, name, if_exists = altered
    pieces.expect("RETAIN", "HISTORY")
    pieces.close()
    return st.AlterRetain(pieces.source, kind, name, None, if_exists)


def _alter_cluster(pieces: Pieces, altered: Altered) -> cs.AlterCluster:
    """SET (options) or RESET (names); no other form is left for a cluster."""
    setting = pieces.expect_one(_SETTING, "one of OWNER or RENAME or RESET or SET or SWAP")
    pieces.open()
    given = option_list(pieces, CLUSTER_OPTIONS, values=setting == "set")
    pieces.close()
    return cs.AlterCluster(
        pieces.source, altered.name, given, setting == "reset", altered.if_exists
    )


def _alter_role(pieces: Pieces, altered: Altered) -> cs.AlterRole | cs.AlterRoleVariable:
    """SET or RESET of a variable, or attributes; no other form is left for a role."""
    source, name = pieces.source, altered.name
    if pieces.take("SET"):
        variable = set_name(pieces)
        return cs.AlterRoleVariable(source, name, variable, set_values(pieces))
    if pieces.take("RESET"):
        return cs.AlterRoleVariable(source, name, reset_name(pieces), None)
    pieces.take("WITH")
    return cs.AlterRole(source, name, _attributes(pieces))


#: The forms of ALTER: the form's name in `Kind.alters` (None: all kinds have it), the words that it begins with, and
#: what parses the rest. The last two are all that is left for their kinds.
_FORMS: tuple[tuple[str | None, Words, Callable[[Pieces, Altered], st.Statement]], ...] = (
    (None, ("RENAME", "TO"), _rename),
    (None, ("OWNER", "TO"), _set_owner),
    ("swap", ("SWAP", "WITH"), _swap),
    ("set schema", ("SET", "SCHEMA"), _set_schema),
    ("set cluster", ("SET", "CLUSTER"), _set_cluster),
    ("retain history", ("SET", "("), _set_retention),
    ("retain history", ("RESET", "("), _reset_retention),
    ("options", (), _alter_cluster),
    ("attributes", (), _alter_role),
)


# --- COMMENT --------------------------------------------------------------------------------------


def comment(pieces: Pieces) -> cs.Comment:
    """COMMENT ON … IS …, after COMMENT.

    Raises:
        SqlSyntaxError: the text goes on differently.
        Unsupported: it is on a kind of things that users cannot make.
    """
    pieces.expect("ON")
    position = pieces.position()
    kind = pieces.expect_one(_COMMENTED)
    if KIND[kind].made_by != "users":
        raise Unsupported(f"COMMENT ON {kind.upper()} is not supported", position=position)
    name, column = _column(pieces) if kind == "column" else (name_of(pieces, kind), None)
    pieces.expect("IS")
    text = None if pieces.take("NULL") else pieces.string()
    return cs.Comment(pieces.source, kind, name, column, text)


def _column(pieces: Pieces) -> tuple[st.Name, str]:
    """A relation's name and that of a column of it."""
    position = pieces.position()
    parts = pieces.dotted()
    if not 2 <= len(parts) <= 4:
        raise SqlSyntaxError(
            "need to specify an object and a column", position=position, sqlstate="42601"
        )
    return st.Name(PartialName(*reversed(parts[:-1])), position), parts[-1]


#: The statements of this family, by the words that they begin with.
STATEMENTS: Statements = (
    (("CREATE", "SCHEMA"), create_schema),
    (("CREATE", "DATABASE"), create_database),
    (("CREATE", "ROLE"), create_role),
    (("CREATE", "CLUSTER"), create_cluster),
    (("CREATE", "CLUSTER", "REPLICA"), create_replica),
    *((("DROP", *words), partial(drop, kind=" ".join(words).lower())) for words in _PLACES),
    (("ALTER",), alter),
    (("COMMENT",), comment),
)
#: Those that other systems have too (`mzsql.frontend.parse.heads`).
OTHERS = (
    *each(("CREATE", "DROP"), (("SCHEMA",), ("DATABASE",))),
    ("ALTER",),
    ("COMMENT",),
)
#: Their forms that no other system has.
OWN = each(("ALTER", "COMMENT ON"), OWN_KINDS)
#: Those that others have too and that go by the relation whose name follows.
NAMED = (
    *each(("ALTER TABLE", "ALTER VIEW"), (("IF", "EXISTS"), ())),
    *each(("COMMENT ON",), (("TABLE",), ("VIEW",))),
)
