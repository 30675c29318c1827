"""Parsing options of clusters and replicas, and RETAIN HISTORY FOR of objects, in CREATE and ALTER.

Promise: an option is known by its name here; its value is checked when the statement is planned, except where the value
has a grammar of its own (SCHEDULE, RETAIN HISTORY).
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot.tokenizer_core import TokenType

from mzsql.frontend.kinds import Words
from mzsql.frontend.parse import catalog_statements as cs
from mzsql.frontend.parse.pieces import Pieces
from mzsql.frontend.parse.retention import retained_ms
from mzsql.repr.errors import InvalidParameter, SqlSyntaxError
from mzsql.repr.interval_text import parse_interval
from mzsql.repr.refresh import OnRefresh

#: Options of clusters, and below of replicas.
CLUSTER_OPTIONS = (
    ("AVAILABILITY", "ZONES"),
    ("DISK",),
    ("INTROSPECTION", "INTERVAL"),
    ("INTROSPECTION", "DEBUGGING"),
    ("MANAGED",),
    ("REPLICAS",),
    ("REPLICATION", "FACTOR"),
    ("SIZE",),
    ("SCHEDULE",),
    ("WORKLOAD", "CLASS"),
)
REPLICA_OPTIONS = (
    ("AVAILABILITY", "ZONE"),
    ("BILLED", "AS"),
    ("COMPUTE", "ADDRESSES"),
    ("COMPUTECTL", "ADDRESSES"),
    ("DISK",),
    ("INTERNAL",),
    ("INTROSPECTION", "INTERVAL"),
    ("INTROSPECTION", "DEBUGGING"),
    ("SIZE",),
    ("STORAGE", "ADDRESSES"),
    ("STORAGECTL", "ADDRESSES"),
    ("WORKERS",),
)
_QUOTED = (TokenType.STRING, TokenType.IDENTIFIER)
_DAY_US = 86_400_000_000


# --- options of clusters and replicas -----------------------------------------------------------------


def options(pieces: Pieces, known: Sequence[Words]) -> tuple[cs.Option, ...]:
    """Options separated by commas, with or without parentheses.

    Raises:
        SqlSyntaxError: an unknown option, one given twice, or one without its value.
        InvalidParameter: a SCHEDULE has an estimate that is no duration.
    """
    if not pieces.take_token(TokenType.L_PAREN):
        return option_list(pieces, known)
    found = option_list(pieces, known)
    pieces.close()
    return found


def option_list(
    pieces: Pieces, known: Sequence[Words], *, values: bool = True
) -> tuple[cs.Option, ...]:
    """Options separated by commas; without ``values`` their names alone, as in RESET.

    Raises:
        SqlSyntaxError, InvalidParameter: as by `options`.
    """
    found: list[cs.Option] = []
    while True:
        option = _option(pieces, known, values=values)
        if any(one.name == option.name for one in found):
            raise SqlSyntaxError(
                f"{option.name} specified more than once", position=option.position
            )
        found.append(option)
        if not pieces.take_token(TokenType.COMMA):
            return tuple(found)


def _option(pieces: Pieces, known: Sequence[Words], *, values: bool) -> cs.Option:
    position = pieces.position()
    name = pieces.expect_one(known)
    if not values:
        return cs.Option(name.upper(), None, position)
    pieces.take_token(TokenType.EQ)
    if name == "replicas":
        return cs.Option("REPLICAS", pieces.in_parentheses(_replica, or_none=True), position)
    if name == "schedule":
        return cs.Option("SCHEDULE", _schedule(pieces), position)
    quoted = pieces.peek_token(*_QUOTED)
    return cs.Option(name.upper(), _value(pieces), position, quoted)


def _replica(pieces: Pieces) -> cs.ReplicaSpec:
    """A replica of REPLICAS: its name, and its options in parentheses."""
    position = pieces.position()
    name = pieces.identifier()
    pieces.open()
    spec = cs.ReplicaSpec(name, option_list(pieces, REPLICA_OPTIONS), position)
    pieces.close()
    return spec


def _schedule(pieces: Pieces) -> OnRefresh | None:
    """MANUAL (None) or ON REFRESH [(HYDRATION TIME ESTIMATE = 'interval')]."""
    estimate = 0
    if pieces.expect_one((("MANUAL",), ("ON",))) == "manual":
        return None
    pieces.expect("REFRESH")
    if pieces.take_token(TokenType.L_PAREN):
        pieces.expect("HYDRATION", "TIME", "ESTIMATE")
        pieces.take_token(TokenType.EQ)
        position = pieces.position()
        estimate = _estimate_ms(pieces.string(), position)
        pieces.close()
    return OnRefresh(estimate)


def _estimate_ms(text: str, position: int) -> int:
    estimate = parse_interval(text)
    what = "HYDRATION TIME ESTIMATE must"
    if estimate.months:
        raise InvalidParameter(f"{what} not involve units larger than days", position=position)
    if estimate.days * _DAY_US + estimate.microseconds < 0:
        raise InvalidParameter(f"{what} be non-negative; got: {estimate}", position=position)
    return (estimate.days * _DAY_US + estimate.microseconds) // 1000


def _value(pieces: Pieces) -> str | int | bool | tuple[str, ...] | None:
    """An option's value; True where none is written."""
    if pieces.at_end() or pieces.peek_token(TokenType.COMMA, TokenType.R_PAREN):
        return True
    if pieces.take_token(TokenType.L_BRACKET):
        return _bracketed(pieces)
    p = pieces.parser
    token = p._curr
    p._advance()
    if token.token_type in _QUOTED:
        return str(token.text)
    if token.token_type == TokenType.NUMBER and str(token.text).isdigit():
        return int(token.text)
    word = str(token.text).lower()
    if token.token_type in (TokenType.TRUE, TokenType.FALSE):
        return word == "true"
    if word == "null":
        return None
    if word == "interval":
        return pieces.string()
    if not (word[:1].isalpha() or word[:1] == "_"):
        p._retreat(p._index - 1)  # the message names this token
        pieces.expected("option value")
    return word


def _bracketed(pieces: Pieces) -> tuple[str, ...]:
    """Strings with commas between them and the bracket that ends them; possibly none."""
    empty = pieces.peek_token(TokenType.R_BRACKET)
    found = () if empty else pieces.separated(Pieces.string)
    pieces.expect_token(TokenType.R_BRACKET, "right square bracket")
    return found


# --- RETAIN HISTORY -----------------------------------------------------------------------------------


def retained(pieces: Pieces) -> str:
    """[=] FOR 'interval', after RETAIN HISTORY; the interval's text, checked.

    Raises:
        SqlSyntaxError: the text goes on differently.
        InvalidParameter: as by `retained_ms`.
    """
    pieces.take_token(TokenType.EQ)
    pieces.expect("FOR")
    position = pieces.position()
    pieces.take("INTERVAL")
    text = pieces.string()
    retained_ms(text, position)
    return text


def retention(pieces: Pieces) -> str | None:
    """An optional WITH (RETAIN HISTORY FOR …) of a table or an index; the interval's text.

    Raises:
        SqlSyntaxError, InvalidParameter: as by `retained`; or it is given twice.
    """
    if not pieces.take("WITH"):
        return None
    pieces.open()
    pieces.expect("RETAIN", "HISTORY")
    text = retained(pieces)
    position = pieces.position()
    if pieces.take_token(TokenType.COMMA):
        pieces.expect("RETAIN", "HISTORY")
        refuse_second_retention(position)
    pieces.close()
    return text


def refuse_second_retention(position: int) -> None:
    """Refuse RETAIN HISTORY where a statement has it already.

    Raises:
        SqlSyntaxError: always.
    """
    raise SqlSyntaxError(
        "RETAIN HISTORY specified more than once", position=position, sqlstate="42601"
    )
