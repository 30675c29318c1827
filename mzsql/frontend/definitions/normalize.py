"""The text of a definition as the catalog keeps it and SHOW CREATE prints it.

Promise: normalized text means the same in any session: every relation of the catalog by its whole name, every identifier quoted,
keywords in capitals, comments gone, white space single. It is made from the tokens the user wrote, not printed from a tree, so nothing
is rewritten on the way; parsing and normalizing it again gives the same text.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot import expressions as exp
from sqlglot.tokenizer_core import Token, TokenType

from mzsql.frontend.catalog import FullName
from mzsql.frontend.grammar.tokens import tokenize
from mzsql.frontend.parse.pieces import fold

_AS_WRITTEN = frozenset(
    {
        TokenType.VAR,
        TokenType.IDENTIFIER,
        TokenType.STRING,
        TokenType.NUMBER,
        TokenType.BYTE_STRING,
        TokenType.HEREDOC_STRING,
    }
)


def quoted(name: str) -> str:
    """An identifier in quotes."""
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def quoted_name(name: FullName) -> str:
    """A whole name, each part quoted."""
    parts = (name.database, name.schema, name.item)
    return ".".join(quoted(p) for p in parts if p is not None)


def quoted_list(names: Iterable[str]) -> str:
    """Names in quotes, separated by commas."""
    return ", ".join(quoted(n) for n in names)


def normalize_create_sql(
    text: str,
    span: tuple[int, int],
    nodes: Iterable[exp.Expr],
    references: Iterable[tuple[int, int, FullName]],
) -> str:
    """The part `span` of `text`, normalized.

    Args:
        text: the whole text.
        span: first and past-the-last character.
        nodes: the part's syntax trees; their identifiers are quoted.
        references: where relations of the catalog stand (first and past-the-last character), and their whole names.
    """
    start, end = span
    names: dict[int, tuple[int, str]] = {}
    for node in nodes:
        # The name of a join's merged columns stands beside the tree.
        aliases = (join.meta.get("alias") for join in node.find_all(exp.Join))
        for part in (*node.find_all(exp.Identifier), *(a for a in aliases if a is not None)):
            at = part.meta.get("start")
            if at is not None:
                names[int(at)] = (int(part.meta["end"]) + 1, quoted(fold(part)))
    for first, last, full in references:
        names[first] = (last, quoted_name(full))
    pieces: list[str] = []
    previous_end = start
    skip_to = start
    for token in tokenize(text[start:end]):
        at, past = token.start + start, token.end + start + 1
        if at < skip_to:
            previous_end = past
            continue
        if pieces and at > previous_end:
            pieces.append(" ")
        if at in names:
            skip_to, written = names[at]
            pieces.append(written)
        else:
            pieces.append(_written(token, text[at:past]))
        previous_end = past
    return "".join(pieces)


def _written(token: Token, source: str) -> str:
    if token.token_type in _AS_WRITTEN or not source[:1].isalpha():
        return source
    return " ".join(source.upper().split())
