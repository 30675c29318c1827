"""Parsing CREATE and DROP of objects in schemas: tables, views, materialized views, indexes, types.

What is in no schema, ALTER and COMMENT are in `mzsql.frontend.parse.catalog`.
"""

from __future__ import annotations

from functools import partial
from typing import NoReturn

from sqlglot import expressions as exp
from sqlglot.tokenizer_core import TokenType

from mzsql.frontend.kinds import KINDS
from mzsql.frontend.parse import statements as st
from mzsql.frontend.parse.named import OWN_KINDS, one_of
from mzsql.frontend.parse.options import refuse_second_retention, retained, retention
from mzsql.frontend.parse.pieces import Pieces, Statements, each
from mzsql.frontend.parse.retention import OPTION
from mzsql.repr.errors import SqlSyntaxError, Unsupported
from mzsql.repr.interval_text import FIELDS

#: What other systems can create, so that it is refused by name.
_UNSUPPORTED_CREATES = frozenset(
    """
    SOURCE SINK USER SECRET CONNECTION FUNCTION TRIGGER SEQUENCE
    EXTENSION NETWORK
    """.split()  # noqa: SIM905
)
_NO_CREDENTIALS = (
    "Nothing here connects to other systems by itself: COPY and Spark are given what they need."
)
#: What to do instead of some of these.
_INSTEAD = {
    "SOURCE": 'Write to a table: INSERT, COPY … FROM, or Spark\'s df.write.format("mzsql").',
    "SINK": 'Read changes: SUBSCRIBE, COPY … TO, or Spark\'s readStream.format("mzsql").',
    "CONNECTION": _NO_CREDENTIALS,
    "SECRET": _NO_CREDENTIALS,
    "USER": "Use CREATE ROLE.",
}
#: What DROP names of what is in schemas; what there cannot be here is refused when the statement is planned.
_DROPPED = tuple(kind.words for kind in KINDS if kind.in_schema and not kind.only_comment)
_UNITS = tuple((word.upper(),) for one in FIELDS for word in (one, f"{one}s"))

_TEMPORARY = (("TEMPORARY",), ("TEMP",))

#: A key of CREATE TABLE: its keywords, columns and position.
Key = tuple[str, tuple[str, ...], int]


def create(pieces: Pieces) -> NoReturn:
    """CREATE of what is in no family's table, after CREATE: refused.

    Raises:
        SqlSyntaxError: there is no such statement.
        Unsupported: other systems have it.
    """
    position = pieces.position()
    or_replace = pieces.take("OR", "REPLACE")
    if pieces.take_one(_TEMPORARY):
        pieces.expected("VIEW" if or_replace else "TABLE or VIEW after CREATE TEMPORARY")
    if or_replace:
        pieces.expected("[TEMPORARY | MATERIALIZED] VIEW after OR REPLACE")
    word = pieces.word()
    if word not in _UNSUPPORTED_CREATES:
        made = (kind for kind in KINDS if kind.made_by == "users" and not kind.only_comment)
        pieces.expected(one_of(made, "DEFAULT INDEX"))
    raise Unsupported(f"CREATE {word} is not supported", position=position, hint=_INSTEAD.get(word))


# --- types ----------------------------------------------------------------------------------------


def create_type(pieces: Pieces) -> st.CreateType:
    """CREATE TYPE name AS LIST (ELEMENT TYPE = …), AS MAP (KEY TYPE = …, VALUE TYPE = …), AS (field type, …), after TYPE.

    Raises:
        SqlSyntaxError: the text goes on differently.
        Unsupported: it is an enum or a range.
    """
    name = pieces.name()
    pieces.expect_as()
    position = pieces.position()
    kind = pieces.take_one((("LIST",), ("MAP",), ("ENUM",), ("RANGE",)))
    if kind in ("enum", "range"):
        raise Unsupported(f"CREATE TYPE … AS {kind.upper()} is not supported", position=position)
    if kind is None:
        fields = pieces.in_parentheses(_field, or_none=True)
        return st.CreateType(pieces.source, name, "record", fields=fields)
    pieces.open()
    options = _type_options(pieces, ("KEY", "VALUE") if kind == "map" else ("ELEMENT",))
    pieces.close()
    element = options.get("VALUE") or options["ELEMENT"]
    return st.CreateType(pieces.source, name, kind, options.get("KEY"), element)


def _field(pieces: Pieces) -> tuple[str, int, exp.DataType]:
    return (*pieces.placed_identifier(), pieces.data_type())


def _type_options(pieces: Pieces, wanted: tuple[str, ...]) -> dict[str, exp.DataType]:
    """Options such as ELEMENT TYPE = integer, each once, in any order."""
    found: dict[str, exp.DataType] = {}
    while True:
        left = tuple((word, "TYPE") for word in wanted if word not in found)
        missing = " or ".join(" ".join(words) for words in left)
        said = pieces.expect_one(left, missing or "right parenthesis")
        pieces.take_token(TokenType.EQ)
        found[said.split()[0].upper()] = pieces.data_type()
        if not pieces.take_token(TokenType.COMMA):
            break
    for word in wanted:
        if word not in found:
            raise SqlSyntaxError(f"{word} TYPE option is required", position=pieces.position())
    return found


# --- views ----------------------------------------------------------------------------------------


def create_view(
    pieces: Pieces,
    *,
    materialized: bool = False,
    or_replace: bool = False,
    temporary: bool = False,
) -> st.CreateView:
    """CREATE [OR REPLACE] [MATERIALIZED | TEMPORARY] VIEW, after VIEW.

    Raises:
        SqlSyntaxError: the text goes on differently.
        InvalidParameter: it retains history for what is no duration.
    """
    if_not_exists = pieces.if_not_exists()
    name = pieces.name()
    columns = tuple(column for column, _ in pieces.columns())
    cluster = pieces.in_cluster() if materialized else None
    refresh: list[st.Refresh] = []
    options = _view_options(pieces, refresh) if materialized and pieces.take("WITH") else ()
    pieces.expect_as()
    return st.CreateView(
        pieces.source,
        name,
        columns,
        pieces.select(),
        materialized,
        if_not_exists,
        or_replace,
        cluster,
        options,
        tuple(refresh),
        temporary,
    )


def _view_options(pieces: Pieces, refresh: list[st.Refresh]) -> tuple[tuple[str, str], ...]:
    """WITH (ASSERT NOT NULL c, …) of a materialized view, as kind and operand; its REFRESH options are appended to
    ``refresh``.
    """
    pieces.open()
    found: list[tuple[str, str]] = []
    while True:
        position = pieces.position()
        if pieces.take("ASSERT", "NOT", "NULL"):
            pieces.take_token(TokenType.EQ)
            found.append(("assert not null", pieces.identifier()))
        elif pieces.take("RETAIN", "HISTORY"):
            if any(kind == OPTION for kind, _ in found):
                refuse_second_retention(position)
            found.append((OPTION, retained(pieces)))
        elif pieces.take("REFRESH"):
            refresh.append(_refresh(pieces, position))
        else:
            pieces.expected("one of ASSERT NOT NULL, REFRESH or RETAIN HISTORY")
        if not pieces.take_token(TokenType.COMMA):
            break
    pieces.close()
    return tuple(found)


def _refresh(pieces: Pieces, position: int) -> st.Refresh:
    """A REFRESH option, after REFRESH."""
    pieces.take_token(TokenType.EQ)
    if pieces.take("ON"):
        pieces.expect("COMMIT")
        return st.Refresh("on commit", position)
    if pieces.take("AT", "CREATION"):
        return st.Refresh("at creation", position)
    if pieces.take("AT"):
        return st.Refresh("at", position, pieces.expression())
    if not pieces.take("EVERY"):
        pieces.expected("one of ON or AT or EVERY")
    every = pieces.string()
    unit = pieces.take_one(_UNITS)
    aligned = pieces.expression() if pieces.take("ALIGNED", "TO") else None
    return st.Refresh("every", position, aligned, every, (unit or "").removesuffix("s"))


# --- tables ---------------------------------------------------------------------------------------


def create_table(pieces: Pieces, *, temporary: bool = False) -> st.CreateTable:
    """CREATE [TEMPORARY] TABLE, after these words.

    Raises:
        SqlSyntaxError: the text goes on differently.
        Unsupported: it is made from a query, or has a constraint that nothing would enforce.
        InvalidParameter: it retains history for what is no duration.
    """
    if_not_exists = pieces.if_not_exists()
    position = pieces.position()
    name = pieces.name()
    if pieces.peek_token(TokenType.ALIAS):
        raise Unsupported(
            "CREATE TABLE … AS is not supported",
            position=position,
            hint="CREATE TABLE with the columns and INSERT INTO it what SELECT finds, or CREATE MATERIALIZED VIEW … AS.",
        )
    columns: list[st.ColumnSpec] = []
    keys: list[Key] = []
    pieces.open()
    # A table may have no columns, but nothing may be missing behind a comma.
    while columns or keys or not pieces.peek_token(TokenType.R_PAREN):
        if not _table_constraint(pieces, keys):
            columns.append(_column(pieces, keys))
        if not pieces.take_token(TokenType.COMMA):
            break
    pieces.close()
    retain = retention(pieces)
    return st.CreateTable(
        pieces.source, name, tuple(columns), tuple(keys), if_not_exists, retain, temporary
    )


def _table_constraint(pieces: Pieces, keys: list[Key]) -> bool:
    """A constraint of the table, appended to ``keys``; whether there is one."""
    position = pieces.position()
    named = pieces.take("CONSTRAINT")
    if named:
        pieces.identifier()
    kind = _key_words(pieces)
    if kind is not None:
        columns = pieces.columns()
        if not columns:
            pieces.expected("left parenthesis")
        _add_key(pieces, keys, kind, tuple(column for column, _ in columns), position)
        return True
    if pieces.take_token(TokenType.FOREIGN_KEY):
        pieces.columns()
        pieces.expect("REFERENCES")
        _add_reference(pieces, keys, position)
        return True
    if pieces.take("CHECK"):
        _add_check(pieces, keys, position)
        return True
    if named:
        pieces.expected("PRIMARY KEY, UNIQUE, FOREIGN KEY, or CHECK")
    return False


def _key_words(pieces: Pieces) -> str | None:
    """PRIMARY KEY, which is one token, or UNIQUE; None where neither comes next."""
    if pieces.take_token(TokenType.PRIMARY_KEY):
        return "PRIMARY KEY"
    return "UNIQUE" if pieces.take("UNIQUE") else None


def _add_key(
    pieces: Pieces, keys: list[Key], kind: str, columns: tuple[str, ...], position: int
) -> None:
    """A key of CREATE TABLE; with NOT ENFORCED it is documentation only."""
    enforced = not pieces.take("NOT", "ENFORCED")
    keys.append((kind if enforced else f"{kind} NOT ENFORCED", columns, position))


def _column(pieces: Pieces, keys: list[Key]) -> st.ColumnSpec:
    """A column with its constraints; its keys are appended to ``keys``."""
    name, position = pieces.placed_identifier()
    typ = pieces.data_type()
    not_null, default = False, None
    while True:
        at = pieces.position()
        if pieces.take("NOT", "NULL"):
            not_null = True
        elif pieces.take("NULL"):
            not_null = False
        elif pieces.take("DEFAULT"):
            default = pieces.operand()
        elif (kind := _key_words(pieces)) is not None:
            _add_key(pieces, keys, kind, (name,), at)
        elif pieces.take("REFERENCES"):
            _add_reference(pieces, keys, at)
        elif pieces.take("CHECK"):
            _add_check(pieces, keys, at)
        else:
            return st.ColumnSpec(name, typ, position, not_null, default)


def _add_reference(pieces: Pieces, keys: list[Key], position: int) -> None:
    """A foreign key, after REFERENCES: the other table and its columns."""
    pieces.name()
    pieces.columns()
    keys.append(("FOREIGN KEY", (), position))


def _add_check(pieces: Pieces, keys: list[Key], position: int) -> None:
    """A check constraint, after CHECK; its condition is read only, as nothing checks it."""
    pieces.operand()
    keys.append(("CHECK", (), position))


# --- indexes --------------------------------------------------------------------------------------


def create_index(pieces: Pieces, *, default: bool = False) -> st.CreateIndex:
    """CREATE [DEFAULT] INDEX, after INDEX; the default one has no list of keys.

    Raises:
        SqlSyntaxError: the text goes on differently.
        InvalidParameter: it retains history for what is no duration.
    """
    if_not_exists = pieces.if_not_exists()
    unnamed = pieces.at_end() or pieces.word() in ("ON", "IN")
    name = None if unnamed else pieces.name()
    cluster = pieces.in_cluster()
    pieces.expect("ON")
    on = pieces.name()
    if pieces.take("USING"):
        pieces.expect("ARRANGEMENT")
    keys = None if default else pieces.in_parentheses(_index_key, or_none=True)
    retain = retention(pieces)
    return st.CreateIndex(pieces.source, name, on, keys, cluster, if_not_exists, retain)


def _index_key(pieces: Pieces) -> exp.Expr:
    key = pieces.expression()
    pieces.take("ASC")  # an arrangement has no order, so there is nothing to keep of it
    return key


# --- DROP -----------------------------------------------------------------------------------------


def drop(pieces: Pieces, kind: str) -> st.Drop:
    """DROP of objects, after their kind.

    Raises:
        SqlSyntaxError: no name follows.
    """
    if_exists = pieces.if_exists()
    names = pieces.separated(Pieces.name)
    cascade = pieces.take("CASCADE")
    if not cascade:
        pieces.take("RESTRICT")
    return st.Drop(pieces.source, kind, names, if_exists, cascade)


def drop_other(pieces: Pieces) -> NoReturn:
    """DROP of what is in no family's table, after DROP: refused.

    Raises:
        SqlSyntaxError: there is no such statement.
        Unsupported: other systems have it.
    """
    position = pieces.position()
    word = pieces.word()
    if word in _UNSUPPORTED_CREATES:
        raise Unsupported(f"DROP {word} is not supported", position=position)
    pieces.expected(one_of(kind for kind in KINDS if not kind.only_comment))


#: The statements of this family, by the words that they begin with.
STATEMENTS: Statements = (
    (("CREATE",), create),
    (("CREATE", "TABLE"), create_table),
    (("CREATE", "VIEW"), create_view),
    (("CREATE", "OR", "REPLACE", "VIEW"), partial(create_view, or_replace=True)),
    (("CREATE", "MATERIALIZED", "VIEW"), partial(create_view, materialized=True)),
    (
        ("CREATE", "OR", "REPLACE", "MATERIALIZED", "VIEW"),
        partial(create_view, materialized=True, or_replace=True),
    ),
    *(
        entry
        for words in _TEMPORARY
        for entry in (
            (("CREATE", *words, "TABLE"), partial(create_table, temporary=True)),
            (("CREATE", *words, "VIEW"), partial(create_view, temporary=True)),
            (
                ("CREATE", "OR", "REPLACE", *words, "VIEW"),
                partial(create_view, temporary=True, or_replace=True),
            ),
        )
    ),
    (("CREATE", "INDEX"), create_index),
    (("CREATE", "DEFAULT", "INDEX"), partial(create_index, default=True)),
    (("CREATE", "TYPE"), create_type),
    *((("DROP", *words), partial(drop, kind=" ".join(words).lower())) for words in _DROPPED),
    (("DROP",), drop_other),
)
#: Those that other systems have too (`mzsql.frontend.parse.heads`).
OTHERS = (
    ("CREATE",),
    ("CREATE", "TABLE"),
    ("CREATE", "VIEW"),
    ("CREATE", "OR", "REPLACE", "VIEW"),
    ("DROP",),
)
#: Their forms that no other system has.
OWN = each(("CREATE", "CREATE OR REPLACE", "DROP"), OWN_KINDS)
#: Those that others have too and that go by the relation whose name follows.
NAMED = each(("DROP TABLE", "DROP VIEW"), (("IF", "EXISTS"), ()))
