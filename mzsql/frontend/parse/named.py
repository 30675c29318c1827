"""Names of things by their kind: how many parts they have, and what they are parts of."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from sqlglot.tokenizer_core import TokenType

from mzsql.frontend.catalog import PartialName
from mzsql.frontend.kinds import KIND, KINDS, Kind
from mzsql.frontend.parse import statements as st
from mzsql.frontend.parse.pieces import Pieces
from mzsql.repr.errors import SqlSyntaxError

#: What DROP, ALTER and SHOW CREATE name, so that they are or are refused by name.
OBJECT_KINDS = tuple(kind.words for kind in KINDS if not kind.only_comment)
#: The kinds that Spark's SQL lacks.
OWN_KINDS = tuple(kind.words for kind in KINDS if not kind.spark)


def one_of(kinds: Iterable[Kind], *also: str) -> str:
    """What a message expects where one of these kinds must follow; a replica goes without saying, as its cluster's."""
    *most, last = sorted(
        {" ".join(kind.words) for kind in kinds if kind.name != "cluster replica"} | {*also}
    )
    return f"one of {', '.join(most)} or {last}"


def replica_name(pieces: Pieces) -> st.Name:
    """cluster.replica"""
    position = pieces.position()
    cluster = pieces.identifier()
    pieces.expect_token(TokenType.DOT, "dot")
    return st.Name(PartialName(pieces.identifier(), cluster), position)


def schema_name(pieces: Pieces) -> st.Name:
    """[database.]schema

    Raises:
        SqlSyntaxError: it has three parts, or is no name.
    """
    name = pieces.name()
    if name.partial.database is not None:
        raise SqlSyntaxError(
            f"schema name '{name}' cannot have more than two components", position=name.position
        )
    return name


def name_of(pieces: Pieces, kind: str) -> st.Name:
    """A name in the form that things of this kind have.

    Raises:
        SqlSyntaxError: there is no name of this form.
    """
    if KIND[kind].in_schema:
        return pieces.name()
    own = _OWN_FORMS.get(kind)
    return pieces.plain_name() if own is None else own(pieces)


def names_of(pieces: Pieces, kind: str) -> tuple[st.Name, ...]:
    """Names of things of a kind, with commas between them.

    Raises:
        SqlSyntaxError: there is no such list.
    """
    return pieces.separated(partial(name_of, kind=kind))


#: Of the kinds that are in no schema, those whose names have more than one part.
_OWN_FORMS = {"schema": schema_name, "cluster replica": replica_name}
