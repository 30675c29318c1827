"""Deciding by its first words whether a statement is mzsql's, in a session with statements of its own, such as Spark's.

Promise: the text need not be correct. A statement that only mzsql has is mzsql's with every mistake in it, so that the
error is the one that a cursor raises; one that both have is mzsql's if the relation that it names is. The trade-off:
CREATE TABLE and CREATE VIEW, which both have and which name no existing relation, are the other system's.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from itertools import product

from sqlglot.tokenizer_core import Token, TokenType

from mzsql.frontend.catalog import PartialName
from mzsql.frontend.grammar.tokens import tokenize
from mzsql.frontend.parse.session import EXPLAIN_STAGES
from mzsql.repr.errors import SqlError


class Whose(Enum):
    """Whether a statement is mzsql's, mzsql's if the relation that it names is, or the other system's."""

    OURS = "ours"
    NAMED = "named"
    OTHERS = "others"


Words = tuple[str, ...]


def _each(firsts: Sequence[str], thens: Sequence[str]) -> tuple[Words, ...]:
    """Every combination of a beginning and a continuation."""
    return tuple((*a.split(), *b.split()) for a, b in product(firsts, thens))


_OURS: tuple[Words, ...] = (
    *(("EXPLAIN", *stage, "PLAN") for stage in ((), *EXPLAIN_STAGES)),
    *_each(("EXPLAIN",), ("TIMESTAMP", "FILTER PUSHDOWN")),
    *_each(("CREATE", "CREATE OR REPLACE", "DROP", "ALTER", "SHOW CREATE"), ("MATERIALIZED VIEW",)),
    *_each(("CREATE", "CREATE DEFAULT", "DROP", "ALTER", "SHOW CREATE"), ("INDEX",)),
    *_each(("CREATE", "DROP", "ALTER"), ("CLUSTER", "SOURCE")),
    *_each(("SHOW",), ("MATERIALIZED VIEWS", "INDEXES", "CLUSTERS", "CLUSTER REPLICAS")),
    *_each(("SHOW",), ("SOURCES", "OBJECTS")),
    ("COPY",),
    ("SUBSCRIBE",),
)
#: Longer ones first, since the relation's name follows.
_NAMED: tuple[Words, ...] = (
    *_each(("DROP TABLE", "DROP VIEW"), ("IF EXISTS", "")),
    *_each(("SHOW CREATE",), ("TABLE", "VIEW")),
    *_each(("INSERT INTO", "UPDATE", "DELETE FROM"), ("",)),
)
_QUOTED = (TokenType.IDENTIFIER, TokenType.STRING)


def whose(text: str) -> tuple[Whose, PartialName | None]:
    """Whose a statement is, with the relation that it names where that decides."""
    try:
        tokens = list(tokenize(text))
    except SqlError:
        return Whose.OTHERS, None  # no token of ours: another's language may have it
    if any(_begins(tokens, words) for words in _OURS):
        return Whose.OURS, None
    behind = next((tokens[len(words) :] for words in _NAMED if _begins(tokens, words)), None)
    name = None if behind is None else _name(behind)
    return (Whose.OTHERS, None) if name is None else (Whose.NAMED, name)


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
