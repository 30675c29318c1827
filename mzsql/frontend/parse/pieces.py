"""Pieces of statements: keywords, names, expressions, queries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

from sqlglot import expressions as exp
from sqlglot.tokenizer_core import TokenType

from mzsql.frontend.catalog import PartialName
from mzsql.frontend.grammar.dialect import Parser
from mzsql.frontend.parse import statements as st
from mzsql.repr.booleans import boolean_of
from mzsql.repr.errors import SqlSyntaxError

OBJECT_KINDS = (
    ("MATERIALIZED", "VIEW"),
    ("TABLE",),
    ("VIEW",),
    ("INDEX",),
    ("SOURCE",),
    ("SCHEMA",),
    ("DATABASE",),
    ("CLUSTER", "REPLICA"),
    ("CLUSTER",),
    ("ROLE",),
    ("TYPE",),
)
#: Kinds of objects that exist in Materialize but not here.
FOREIGN_KINDS = (("SINK",), ("SECRET",), ("CONNECTION",))
#: The kinds of objects that Spark's SQL has too.
SHARED_KINDS = (("TABLE",), ("VIEW",), ("SCHEMA",), ("DATABASE",))
#: And those that it lacks.
OWN_KINDS = tuple(kind for kind in (*OBJECT_KINDS, *FOREIGN_KINDS) if kind not in SHARED_KINDS)
QUERY_STARTS = (TokenType.SELECT, TokenType.WITH, TokenType.L_PAREN, TokenType.VALUES)


def fold(node: exp.Expr) -> str:
    """An identifier's name: unchanged if quoted, else in lower case, as in PostgreSQL."""
    return str(node.name) if node.args.get("quoted") else str(node.name).lower()


#: Words that a statement begins with.
Words = tuple[str, ...]
#: Parsers by the words that a statement begins with; called after those words were consumed.
Statements = tuple[tuple[Words, Callable[[Any], st.Statement]], ...]


def each(firsts: Sequence[str], thens: Sequence[Words]) -> tuple[Words, ...]:
    """Every combination of a beginning and a continuation."""
    return tuple((*first.split(), *then) for first, then in product(firsts, thens))


class Pieces:
    """Parses pieces of a statement from the current token on."""

    def __init__(self, parser: Parser, source: st.Source) -> None:
        self.p: Any = parser
        self.source = source

    def at(self, *words: str) -> bool:
        """Consume these words if they come next; whether they did."""
        return bool(self.p._match_text_seq(*words))

    def need(self, *words: str) -> None:
        """Consume these words, which must come next."""
        if not self.at(*words):
            self.p.expected(" ".join(words))

    def one_of(self, choices: tuple[tuple[str, ...], ...]) -> str | None:
        """Consume one of these sequences of words; the sequence in lower case, or None."""
        for words in choices:
            if self.at(*words):
                return " ".join(words).lower()
        return None

    def boolean(self) -> bool:
        """A boolean option's value, with or without an equals sign; True where none is written."""
        equals = self.p._match(TokenType.EQ)
        token = self.p._curr
        value = boolean_of(str(token.text)) if token else None
        if value is not None:
            self.p._advance()
            return value
        if equals:
            self.p.expected("TRUE or FALSE")
        return True

    def position(self) -> int:
        """The 1-based position of the next token."""
        token = self.p._curr
        return int(token.start) + 1 if token else self.source.end + 1

    def identifier(self, what: str = "identifier") -> str:
        """A name: folded to lower case unless quoted."""
        node = self.p._parse_id_var(any_token=False)
        if not isinstance(node, exp.Identifier):
            self.p.expected(what)
        return fold(node)

    def name(self) -> st.Name:
        """A name of up to three parts."""
        position = self.position()
        parts = [self.identifier()]
        while self.p._match(TokenType.DOT):
            parts.append(self.identifier())
        if len(parts) > 3:
            raise SqlSyntaxError(
                f"qualified name did not have between 1 and 3 components: {'.'.join(parts)}",
                position=position,
            )
        return st.Name(PartialName(*reversed(parts)), position)

    def string(self) -> str:
        r"""A string literal's value, also of ``E'\t'`` and ``$$a$$``."""
        if not self.p._match_set(
            (TokenType.STRING, TokenType.BYTE_STRING, TokenType.HEREDOC_STRING)
        ):
            self.p.expected("literal string")
        return str(self.p._prev.text)

    def names_in_parentheses(self) -> tuple[tuple[str, int], ...]:
        """An optional list of names with their positions; empty where there is none."""
        if not self.p._match(TokenType.L_PAREN):
            return ()
        found = [self._named()]
        while self.p._match(TokenType.COMMA):
            found.append(self._named())
        self.p._match_r_paren()
        return tuple(found)

    def _named(self) -> tuple[str, int]:
        position = self.position()
        return self.identifier(), position

    def if_not_exists(self) -> bool:
        """IF NOT EXISTS."""
        return self.at("IF", "NOT", "EXISTS")

    def in_cluster(self) -> st.Name | None:
        """An optional IN CLUSTER c."""
        if not self.at("IN", "CLUSTER"):
            return None
        position = self.position()
        return st.Name(PartialName(self.identifier()), position)

    def expression(self) -> exp.Expr:
        """A scalar expression; `meta["span"]` has its start and end in the text."""
        return self._spanned(self.p._parse_disjunction)

    def _spanned(self, parse: Callable[[], Any]) -> exp.Expr:
        start = self.position() - 1
        node = parse()
        if node is None:
            self.p.expected("an expression")
        node.meta["span"] = (start, self.p._prev.end + 1)
        return node  # type: ignore[no-any-return]

    def select(self) -> st.Select:
        """A query with an optional AS OF."""
        start = self.position() - 1
        query = self.p.parse_query()
        span = (start, self.p._prev.end + 1)
        as_of = None
        at_least = False
        if self.p._match(TokenType.ALIAS):
            self.need("OF")
            at_least = self.at("AT", "LEAST")
            if not self.p._curr or self.p._curr.token_type == TokenType.SEMICOLON:
                self.p.expected("a timestamp value after 'AS OF'")
            as_of = self.expression()
        return st.Select(self.source, query, span, as_of, at_least)

    def _at(self, kind: TokenType) -> bool:
        return bool(self.p._curr and self.p._curr.token_type == kind)
