"""Text to statements.

Promise: `parse_statements` returns structs of `mzsql.frontend.parse.statements` or raises an `SqlSyntaxError` (or
`Unsupported`) with a 1-based position; no other exception leaves it, whatever the text. Statements are parsed by hand
over sqlglot's tokens, following Materialize's grammar; queries and expressions in them by
`mzsql.frontend.grammar.dialect`. Each family of statements has a module of functions with a table of them; here the
tables become one, and this is the only door: a statement inside another is parsed by the table too.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from functools import partial
from typing import Any

from sqlglot.errors import ErrorLevel, SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from mzsql.frontend.grammar.dialect import DIALECT, SyntaxProblem, describe
from mzsql.frontend.grammar.tokens import tokenize
from mzsql.frontend.kinds import Words
from mzsql.frontend.parse import catalog, cursors, ddl, dml, privileges, session
from mzsql.frontend.parse import statements as st
from mzsql.frontend.parse.pieces import QUERY_STARTS, Parse, Pieces
from mzsql.repr.depth import deep
from mzsql.repr.errors import SqlError, SqlSyntaxError, Unsupported
from mzsql.repr.garbage import undisturbed

#: How many characters of texts `RecentTexts` keeps; a character's trees take some 200 bytes. Longer texts than `LONGEST`
#: take longer to answer than to parse.
MOST_CHARACTERS, LONGEST = 128 * 1024, 8 * 1024

#: Of how many texts `RecentTexts` knows that they came once.
MOST_ONCE = 1024

#: Statements of PostgreSQL, Materialize and Spark that do not exist here, with a hint at what to use instead.
_UNSUPPORTED: dict[str, str | None] = {
    "ALTER": None,
    "ANALYZE": "Nothing has to be analyzed: sizes are known from what is stored.",
    "CALL": None,
    "DESCRIBE": "Use SHOW COLUMNS FROM a relation.",
    "DO": None,
    "LISTEN": "Use SUBSCRIBE to hear of changes.",
    "LOCK": "Nothing has to be locked: a transaction that others got in the way of fails with 40001 and can be run again.",
    "MERGE": "Use UPDATE … FROM, then INSERT … SELECT what is not there.",
    "NOTIFY": "Use SUBSCRIBE to hear of changes.",
    "REFRESH": "A materialized view is brought up to date with each commit.",
    "REINDEX": "An index is brought up to date with each commit.",
    "RELEASE": None,
    "SAVEPOINT": None,
    "TAIL": "Use SUBSCRIBE.",
    "TRUNCATE": "Use DELETE FROM.",
    "USE": "Use SET database, or SET search_path.",
    "VACUUM": "Compaction goes on by itself; mzsql maintain does it at once.",
    "VALIDATE": None,
}


@undisturbed()
def parse_statements(text: str) -> list[st.Statement]:
    """Parse a text of statements separated by semicolons; empty statements are skipped.

    Raises:
        SqlSyntaxError: the text is not valid, or nests too deeply.
        Unsupported: the statement is a known one that is not supported.
    """
    with deep():
        return _parse_all(text)


class RecentTexts:
    """The queries that were parsed last: a program asks the same ones again and again, and parsing is a quarter of what
    a small one costs. Thread-safe.

    Only texts of queries are kept: planning those writes nothing into their trees, and other statements seldom recur.
    Trees are kept from the second time on that a text comes, while that is known: most texts with literals in them come
    once, and what is kept of those costs more than it saves.
    """

    def __init__(self) -> None:
        self._once: OrderedDict[int, None] = OrderedDict()
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, tuple[st.Statement, ...]] = OrderedDict()
        self._characters = 0

    def parse(self, text: str) -> list[st.Statement]:
        """As `parse_statements`. Others get the same statements for the same text, so they must not be changed.

        Raises:
            SqlSyntaxError, Unsupported: as `parse_statements`.
        """
        with self._lock:
            found = self._kept.get(text)
            if found is not None:
                self._kept.move_to_end(text)
                return list(found)
            again = self._comes_again(text)
        statements = parse_statements(text)
        if again and all(isinstance(one, st.Select) for one in statements):
            self._keep(text, statements)
        return statements

    def _comes_again(self, text: str) -> bool:
        """Whether a text that is not too long was asked for lately; the caller holds the lock."""
        if len(text) > LONGEST:
            return False
        known = hash(text)
        if known in self._once:
            return True
        self._once[known] = None
        if len(self._once) > MOST_ONCE:
            self._once.popitem(last=False)
        return False

    def _keep(self, text: str, statements: list[st.Statement]) -> None:
        with self._lock:
            if text in self._kept:
                return
            self._once.pop(hash(text), None)
            self._kept[text] = tuple(statements)
            self._characters += len(text)
            while self._characters > MOST_CHARACTERS:
                gone, _ = self._kept.popitem(last=False)
                self._characters -= len(gone)


def _parse_all(text: str) -> list[st.Statement]:
    chunks: list[list[Token]] = [[]]
    for token in tokenize(text):
        if token.token_type == TokenType.SEMICOLON:
            chunks.append([])
        else:
            chunks[-1].append(token)
    found: list[st.Statement] = []
    for chunk in chunks:
        if chunk:
            source = st.Source(text, chunk[0].start, chunk[-1].end + 1)
            found.append(_parse_chunk(chunk, source))
    return found


def _parse_chunk(tokens: list[Token], source: st.Source) -> st.Statement:
    parser: Any = DIALECT.parser(error_level=ErrorLevel.IMMEDIATE)
    # Not sqlglot's own entry point, which parses BEGIN … END blocks; here a chunk of tokens is one statement.
    parser.sql = source.text[: source.end]
    parser._chunks = [tokens]
    parser._advance_chunk()
    try:
        pieces = Pieces(parser, source)
        parser.parse_show = partial(session.shown_query, pieces)
        parsed = _parse_statement(pieces)
        if not pieces.at_end():
            pieces.expected("end of statement")
        return parsed
    except SyntaxProblem as problem:
        raise SqlSyntaxError(problem.message, position=problem.position) from None
    except SqlError:
        raise
    except SqlglotError as error:
        # sqlglot's own errors have no message of ours; the parser's position is where the text is wrong. Any other
        # exception is a bug of the parser and passes through.
        at = parser._curr or None
        raise SqlSyntaxError(
            f"Expected a valid expression, found {describe(at)}",
            position=at.start + 1 if at else source.end + 1,
        ) from error


def _parse_statement(pieces: Pieces) -> st.Statement:
    """The statement that comes next; other tokens may follow it."""
    word = pieces.word()
    for words, parse in _BEGINNING_WITH.get(word, ()):
        if pieces.take(*words):
            return parse(pieces)
    if pieces.peek_token(*QUERY_STARTS) or word in ("TABLE", "VALUES"):
        return pieces.select()
    if word in _UNSUPPORTED:
        raise Unsupported(
            f"{word} statements are not supported",
            position=pieces.position(),
            hint=_UNSUPPORTED[word],
        )
    return pieces.expected("a keyword at the beginning of a statement")


def _by_first_word() -> dict[str, tuple[tuple[Words, Parse], ...]]:
    """All families' statements by their first words, longer beginnings first: ALTER SYSTEM must not be parsed as ALTER."""
    families = (ddl, dml, session, cursors, catalog, privileges)
    rows = [row for family in families for row in family.STATEMENTS]
    for family in (dml, session, cursors):
        for words, parse in family.NESTING:
            rows.append((words, partial(parse, parse_statement=_parse_statement)))
    found: dict[str, tuple[tuple[Words, Parse], ...]] = {}
    for row in sorted(rows, key=lambda row: -len(row[0])):
        found[row[0][0]] = (*found.get(row[0][0], ()), row)
    return found


_BEGINNING_WITH = _by_first_word()
#: The words that statements begin with, for who completes them.
BEGINNINGS = frozenset(
    word for rows in _BEGINNING_WITH.values() for words, _ in rows for word in words
)
