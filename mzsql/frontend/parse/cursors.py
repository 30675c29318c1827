"""Parsing SUBSCRIBE, cursors and prepared statements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlglot import expressions as exp
from sqlglot.tokenizer_core import TokenType

from mzsql.frontend.parse import statements as st
from mzsql.frontend.parse.pieces import Nesting, Parse, Pieces, Statements
from mzsql.frontend.parse.variables import value
from mzsql.repr.errors import SqlSyntaxError, Unsupported

#: PostgreSQL's FETCH directions that a forward-only cursor does not support.
_BACKWARD = (("PRIOR",), ("FIRST",), ("LAST",), ("ABSOLUTE",), ("RELATIVE",), ("BACKWARD",))
#: Statements about the session or the transaction cannot be prepared.
_NOT_PREPARED = (
    *("PREPARE", "EXECUTE", "DEALLOCATE", "DECLARE", "FETCH", "CLOSE", "SET", "RESET", "DISCARD"),
    *("BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT"),
)
_UNPLAIN = (("BINARY",), ("INSENSITIVE",), ("ASENSITIVE",), ("SCROLL",))
_DISCARDED = (("ALL",), ("TEMP",), ("TEMPORARY",), ("PLANS",), ("SEQUENCES",))


@dataclass(frozen=True)
class Declare(st.Statement):
    """DECLARE c CURSOR FOR …"""

    name: str
    statement: st.Statement


@dataclass(frozen=True)
class Fetch(st.Statement):
    """FETCH; `count` None: ALL; `timeout` as written, None where not given."""

    name: str
    count: int | None = 1
    timeout: str | None = None


@dataclass(frozen=True)
class Close(st.Statement):
    """CLOSE c; `name` None: ALL."""

    name: str | None


@dataclass(frozen=True)
class Deallocate(st.Statement):
    """DEALLOCATE [PREPARE] name | ALL; `name` None: ALL."""

    name: str | None


@dataclass(frozen=True)
class Discard(st.Statement):
    """DISCARD ALL | TEMP."""

    everything: bool


# --- SUBSCRIBE ------------------------------------------------------------------------------------


def subscribe(pieces: Pieces, parse_statement: Parse) -> st.Subscribe:
    """SUBSCRIBE [TO] relation, with its clauses in any order; after SUBSCRIBE.

    Raises:
        SqlSyntaxError: the text goes on differently, or clauses do not go together.
        Unsupported: it is about a SHOW that lists no objects.
    """
    pieces.take("TO")
    what = _subscribed(pieces, parse_statement)
    found: dict[str, Any] = {}
    while not pieces.at_end() and not pieces.peek_token(TokenType.R_PAREN):
        position = pieces.position()
        clause = _subscribe_clause(pieces)
        if clause is None:
            break
        if found.keys() & clause.keys():
            raise SqlSyntaxError("a clause of SUBSCRIBE is given twice", position=position)
        if {"envelope", "order"} <= {*found, *clause}:
            raise SqlSyntaxError(
                "ENVELOPE and WITHIN TIMESTAMP ORDER BY cannot be used together",
                position=position,
            )
        found |= clause
    return st.Subscribe(pieces.source, what, **found)


def _subscribed(pieces: Pieces, parse_statement: Parse) -> st.Name | exp.Expr | st.Show:
    if not pieces.take_token(TokenType.L_PAREN):
        return pieces.name()
    what: exp.Expr | st.Show
    if pieces.peek("SHOW"):
        shown = parse_statement(pieces)
        if not isinstance(shown, st.Show):
            raise Unsupported("SUBSCRIBE to this kind of SHOW is not supported")
        what = shown
    else:
        what = pieces.query()
    pieces.close()
    return what


def _subscribe_clause(pieces: Pieces) -> dict[str, Any] | None:
    """A clause, as the fields of `Subscribe` that it gives; None where none follows."""
    if pieces.take("WITH"):
        return _subscribe_options(pieces)
    if pieces.take_token(TokenType.ALIAS):
        pieces.expect("OF")
        at_least = pieces.take("AT", "LEAST")
        return {"as_of": pieces.expression(), "at_least": at_least}
    if pieces.take("UP", "TO"):
        return {"up_to": pieces.expression()}
    if pieces.take("ENVELOPE"):
        return _envelope(pieces)
    if pieces.take("WITHIN", "TIMESTAMP"):
        order = pieces.parser._parse_order()
        if order is None:
            pieces.expected("ORDER BY")
        return {"order": tuple(order.expressions)}
    return None


def _envelope(pieces: Pieces) -> dict[str, Any]:
    """UPSERT | DEBEZIUM (KEY (columns)), after ENVELOPE."""
    envelope = pieces.expect_one((("UPSERT",), ("DEBEZIUM",)), "one of DEBEZIUM or UPSERT")
    pieces.open()
    pieces.expect("KEY")
    keys = pieces.columns()
    if not keys:
        pieces.expected("left parenthesis")
    pieces.close()
    return {"envelope": envelope, "keys": keys}


def _subscribe_options(pieces: Pieces) -> dict[str, Any]:
    """SNAPSHOT and PROGRESS, with or without parentheses; after WITH."""
    bare = not pieces.take_token(TokenType.L_PAREN)
    found: dict[str, Any] = {}
    while True:
        position = pieces.position()
        name = pieces.expect_one((("SNAPSHOT",), ("PROGRESS",)), "one of PROGRESS or SNAPSHOT")
        if name in found:
            raise SqlSyntaxError(f"{name.upper()} specified more than once", position=position)
        found[name] = pieces.boolean()
        if not pieces.take_token(TokenType.COMMA):
            break
    if not bare:
        pieces.close()
    return found


# --- cursors --------------------------------------------------------------------------------------


def declare(pieces: Pieces, parse_statement: Parse) -> Declare:
    """DECLARE name CURSOR [WITHOUT HOLD] FOR query | SUBSCRIBE …, after DECLARE.

    Raises:
        SqlSyntaxError: the text goes on differently.
        Unsupported: the cursor is to outlive its transaction, or not to be a plain one.
    """
    name = pieces.identifier()
    position = pieces.position()
    if pieces.take_one(_UNPLAIN):
        raise Unsupported("only plain cursors are supported", position=position)
    pieces.take("NO", "SCROLL")
    pieces.expect("CURSOR")
    if pieces.take("WITH", "HOLD"):
        raise Unsupported("WITH HOLD cursors are not supported", position=position)
    pieces.take("WITHOUT", "HOLD")
    pieces.expect("FOR")
    if pieces.take("SUBSCRIBE"):
        return Declare(pieces.source, name, subscribe(pieces, parse_statement))
    return Declare(pieces.source, name, pieces.select())


def fetch(pieces: Pieces) -> Fetch:
    """FETCH [FORWARD | NEXT] [n | ALL] [FROM | IN] name [WITH (timeout = …)], after FETCH.

    Raises:
        SqlSyntaxError: the text goes on differently.
        Unsupported: it is to read backward.
    """
    position = pieces.position()
    if pieces.take_one(_BACKWARD):
        raise Unsupported("cursors can only be read forward", position=position)
    count: int | None = 1
    if not pieces.take("NEXT"):
        pieces.take("FORWARD")
        count = _fetch_count(pieces)
    if not pieces.take("FROM"):
        pieces.take("IN")
    name = pieces.identifier()
    timeout = None
    if pieces.take("WITH"):
        pieces.open()
        pieces.expect("TIMEOUT")
        pieces.take_token(TokenType.EQ)
        timeout = value(pieces)
        pieces.close()
    return Fetch(pieces.source, name, count, timeout)


def _fetch_count(pieces: Pieces) -> int | None:
    if pieces.take("ALL"):
        return None
    position = pieces.position()
    if pieces.take_token(TokenType.DASH):
        raise Unsupported("cursors can only be read forward", position=position)
    if not pieces.take_token(TokenType.NUMBER):
        return 1
    text = str(pieces.parser._prev.text)
    if not text.isdigit():
        raise SqlSyntaxError(
            f'Expected literal unsigned integer, found number "{text}"', position=position
        )
    return int(text)


def close(pieces: Pieces) -> Close:
    """CLOSE name | ALL, after CLOSE.

    Raises:
        SqlSyntaxError: neither follows.
    """
    return Close(pieces.source, _name_or_all(pieces))


def _name_or_all(pieces: Pieces) -> str | None:
    return None if pieces.take("ALL") else pieces.identifier()


# --- prepared statements --------------------------------------------------------------------------


def prepare(pieces: Pieces, parse_statement: Parse) -> st.Prepare:
    """PREPARE name [(types)] AS statement, after PREPARE.

    Raises:
        SqlSyntaxError: the text goes on differently, or the statement is one that cannot be prepared.
    """
    name = pieces.identifier()
    types: tuple[exp.DataType, ...] = ()
    if pieces.peek_token(TokenType.L_PAREN):
        types = pieces.in_parentheses(Pieces.data_type)
    pieces.expect_as()
    start = pieces.position() - 1
    if pieces.word() in _NOT_PREPARED:
        pieces.expected("a statement that can be prepared")
    statement = parse_statement(pieces)
    text = pieces.source.text[start : pieces.read_to()]
    return st.Prepare(pieces.source, name, types, text, statement)


def execute(pieces: Pieces) -> st.Execute:
    """EXECUTE name [(expressions)], after EXECUTE.

    Raises:
        SqlSyntaxError: the text goes on differently.
    """
    name = pieces.identifier()
    arguments: tuple[st.Argument, ...] = ()
    if pieces.peek_token(TokenType.L_PAREN):
        arguments = pieces.in_parentheses(_argument, or_none=True)
    return st.Execute(pieces.source, name, arguments)


def _argument(pieces: Pieces) -> st.Argument:
    expression = pieces.expression()
    start, end = expression.meta["span"]
    return st.Argument(pieces.source.text[start:end], start + 1, expression)


def deallocate(pieces: Pieces) -> Deallocate:
    """DEALLOCATE [PREPARE] name | ALL, after DEALLOCATE.

    Raises:
        SqlSyntaxError: neither follows.
    """
    pieces.take("PREPARE")
    return Deallocate(pieces.source, _name_or_all(pieces))


def discard(pieces: Pieces) -> Discard:
    """DISCARD ALL | TEMP | TEMPORARY, after DISCARD.

    Raises:
        SqlSyntaxError: none of them follows.
        Unsupported: it is DISCARD PLANS or SEQUENCES, of which there are none.
    """
    what = pieces.expect_one(_DISCARDED, "one of ALL, PLANS, SEQUENCES, TEMP or TEMPORARY")
    if what in ("plans", "sequences"):
        raise Unsupported(f"DISCARD {what.upper()} is not supported")
    return Discard(pieces.source, what == "all")


#: The statements of this family, by the words that they begin with.
STATEMENTS: Statements = (
    (("FETCH",), fetch),
    (("CLOSE",), close),
    (("EXECUTE",), execute),
    (("DEALLOCATE",), deallocate),
    (("DISCARD",), discard),
)
#: Those that have another statement in them.
NESTING: Nesting = (
    (("SUBSCRIBE",), subscribe),
    (("DECLARE",), declare),
    (("PREPARE",), prepare),
)
#: Those that other systems have too, or what theirs begin with (`mzsql.frontend.parse.heads`): DECLARE is of a variable there, and
#: EXECUTE IMMEDIATE runs a text.
OTHERS = (("DECLARE",), ("EXECUTE", "IMMEDIATE"))
