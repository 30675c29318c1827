"""Deciding by its first words whether a statement is mzsql's, in a session with statements of its own, such as Spark's.

Promise: the text need not be correct. A statement that only mzsql has is mzsql's with every mistake in it, so that the
error is the one that a cursor raises; one that both have is mzsql's if the relation that it names is. The trade-off:
CREATE TABLE and CREATE VIEW, which both have and which name no existing relation, are the other system's, as is what is about its
session: SET, RESET, a bare BEGIN. A statement is mzsql's unless its family says otherwise, beside its table of statements.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from sqlglot.tokenizer_core import Token, TokenType

from mzsql.frontend.catalog import PartialName
from mzsql.frontend.grammar.tokens import tokenize
from mzsql.frontend.kinds import Words
from mzsql.frontend.parse import catalog, cursors, ddl, dml, privileges, session
from mzsql.repr.errors import SqlError


class Whose(Enum):
    """Whether a statement is mzsql's, mzsql's if the relation that it names is, or the other system's."""

    OURS = "ours"
    NAMED = "named"
    OTHERS = "others"


#: DECLARE c CURSOR: words between the name and CURSOR there may be so many of (NO SCROLL and its like).
_BEFORE_CURSOR = 5
_QUOTED = (TokenType.IDENTIFIER, TokenType.STRING)


def _beginnings() -> tuple[tuple[Words, Whose], ...]:
    """Whose a statement is by what it begins with; longer beginnings first, as they say more."""
    found: dict[Words, Whose] = {}
    for family in (ddl, dml, session, cursors, catalog, privileges):
        found |= {words: Whose.OURS for words, _ in family.STATEMENTS}
    for family in (dml, session, cursors):
        found |= {words: Whose.OURS for words, _ in family.NESTING}
    for family in (ddl, dml, session, cursors, catalog):
        found |= dict.fromkeys(family.OTHERS, Whose.OTHERS)
    for family in (ddl, session, catalog):
        found |= dict.fromkeys(family.OWN, Whose.OURS)
    for family in (ddl, dml, session, catalog):
        found |= dict.fromkeys(family.NAMED, Whose.NAMED)
    return tuple(sorted(found.items(), key=lambda one: -len(one[0])))


_BEGINNINGS = _beginnings()


def whose(text: str) -> tuple[Whose, PartialName | None]:
    """Whose a statement is, with the relation that it names where that decides."""
    try:
        tokens = list(tokenize(text))
    except SqlError:
        return Whose.OTHERS, None  # no token of ours: another's language may have it
    if _declares_cursor(tokens):
        return Whose.OURS, None
    found = ((words, owner) for words, owner in _BEGINNINGS if _begins(tokens, words))
    words, decided = next(found, ((), Whose.OTHERS))
    if decided != Whose.NAMED:
        return decided, None
    name = _name(tokens[len(words) :])
    return (Whose.OTHERS, None) if name is None else (Whose.NAMED, name)


def _declares_cursor(tokens: Sequence[Token]) -> bool:
    """DECLARE of a cursor, not of a variable."""
    following = tokens[2 : 2 + _BEFORE_CURSOR]
    return _begins(tokens, ("DECLARE",)) and any(_begins([one], ("CURSOR",)) for one in following)


def _begins(tokens: Sequence[Token], words: Words) -> bool:
    return len(tokens) >= len(words) and all(
        token.token_type not in _QUOTED and token.text.upper() == word
        for token, word in zip(tokens, words, strict=False)
    )


def _name(tokens: Sequence[Token]) -> PartialName | None:
    """The name of up to three parts at the start of the tokens; None where there is none."""
    parts: list[str] = []
    for i, token in enumerate(tokens[:5]):
        if i % 2 == 0:
            if token.token_type == TokenType.STRING or not (
                token.token_type == TokenType.IDENTIFIER
                or token.text[:1].isalpha()
                or token.text[:1] == "_"
            ):
                return None
            quoted = token.token_type == TokenType.IDENTIFIER
            parts.append(token.text if quoted else token.text.lower())
        elif token.token_type != TokenType.DOT:
            break
    return PartialName(*reversed(parts)) if parts else None
