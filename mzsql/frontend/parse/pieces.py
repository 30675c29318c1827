"""Pieces of statements: keywords, names, expressions, queries, lists of them.

Promise: `Pieces` is all that a function which parses a statement is given: the statement's text, and how far it was read.
What such a function needs besides, it takes as an argument. The trade-off: `Pieces` moves on as it is read, as sqlglot's
parser does, on which it stands; so a function that only looks says so (`peek`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NoReturn, TypeVar

from sqlglot import expressions as exp
from sqlglot.tokenizer_core import TokenType

from mzsql.frontend.catalog import PartialName
from mzsql.frontend.kinds import Words
from mzsql.frontend.parse import statements as st
from mzsql.repr.booleans import boolean_of
from mzsql.repr.errors import SqlSyntaxError

#: Tokens that a query begins with.
QUERY_STARTS = (TokenType.SELECT, TokenType.WITH, TokenType.L_PAREN, TokenType.VALUES)
_STRINGS = (TokenType.STRING, TokenType.BYTE_STRING, TokenType.HEREDOC_STRING)
_T = TypeVar("_T")


#: What a node knows of its place in the text that it was parsed from.
_PLACES = ("start", "end", "line", "col", "span", "named")


def without_places(node: exp.Expr) -> exp.Expr:
    """The node, of a text other than the statement's, without its places: they would be taken for the statement's."""
    for one in node.walk():
        for place in _PLACES:
            one.meta.pop(place, None)
    return node


def fold(node: exp.Expr) -> str:
    """An identifier's name: unchanged if quoted, else in lower case, as in PostgreSQL."""
    return str(node.name) if node.args.get("quoted") else str(node.name).lower()


def each(firsts: Sequence[str], thens: Sequence[Words]) -> tuple[Words, ...]:
    """Every combination of a beginning and a continuation."""
    return tuple((*first.split(), *then) for first, then in product(firsts, thens))


@dataclass(frozen=True, slots=True)
class Pieces:
    """The rest of a statement: each method reads one piece of it, or only looks at what comes next.

    Attributes:
        parser: reads the tokens; its place is how far the statement was read. Of the class
            `mzsql.frontend.grammar.dialect.Parser`; sqlglot declares no types for what it inherits.
        source: the statement's text.

    Raises:
        SqlSyntaxError: by every method whose piece does not come next, with the position where it was expected.
    """

    parser: Any
    source: st.Source

    # --- words and tokens -------------------------------------------------------------------------

    def expected(self, what: str) -> NoReturn:
        """Fail, since ``what`` was expected at this place.

        Raises:
            SqlSyntaxError: always.
        """
        self.parser.expected(what)
        raise AssertionError

    def at_end(self) -> bool:
        """Whether all of the statement was read."""
        return not self.parser._curr

    def position(self) -> int:
        """The 1-based position of what comes next."""
        token = self.parser._curr
        return int(token.start) + 1 if token else self.source.end + 1

    def word(self) -> str:
        """The next token's text in capitals; empty at the end."""
        token = self.parser._curr
        return str(token.text).upper() if token else ""

    def peek(self, *words: str) -> bool:
        """Whether these words come next."""
        return bool(self.parser._match_text_seq(*words, advance=False))

    def peek_token(self, *kinds: TokenType) -> bool:
        """Whether a token of one of these kinds comes next."""
        token = self.parser._curr
        return bool(token and token.token_type in kinds)

    def take(self, *words: str) -> bool:
        """Read these words if they come next; whether they did."""
        return bool(self.parser._match_text_seq(*words))

    def take_one(self, choices: Sequence[Words]) -> str | None:
        """Read the first of these sequences of words that comes next; in lower case, or None."""
        for words in choices:
            if self.take(*words):
                return " ".join(words).lower()
        return None

    def take_token(self, kind: TokenType) -> bool:
        """Read a token of this kind if it comes next; whether it did."""
        return bool(self.parser._match(kind))

    def expect(self, *words: str) -> None:
        """Read these words, which must come next."""
        if not self.take(*words):
            self.expected(" ".join(words))

    def expect_one(self, choices: Sequence[Words], what: str | None = None) -> str:
        """Read one of these sequences of words, in lower case; ``what`` is expected where none comes next, by default
        one of their first words.
        """
        found = self.take_one(choices)
        if found is None:
            firsts = dict.fromkeys(words[0] for words in choices)
            self.expected(what or f"one of {' or '.join(firsts)}")
        return found

    def expect_token(self, kind: TokenType, what: str) -> None:
        """Read a token of this kind, which must come next; ``what`` is what messages call it."""
        if not self.take_token(kind):
            self.expected(what)

    def expect_as(self) -> None:
        """Read AS, which must come next."""
        self.expect_token(TokenType.ALIAS, "AS")

    # --- lists ------------------------------------------------------------------------------------

    def open(self) -> None:
        """Read the left parenthesis that must come next."""
        self.expect_token(TokenType.L_PAREN, "left parenthesis")

    def close(self) -> None:
        """Read the right parenthesis that must come next."""
        self.expect_token(TokenType.R_PAREN, "right parenthesis")

    def separated(self, parse: Callable[[Pieces], _T]) -> tuple[_T, ...]:
        """One or more pieces, with commas between them."""
        found = [parse(self)]
        while self.take_token(TokenType.COMMA):
            found.append(parse(self))
        return tuple(found)

    def in_parentheses(
        self, parse: Callable[[Pieces], _T], *, or_none: bool = False
    ) -> tuple[_T, ...]:
        """Pieces with commas between them in parentheses; at least one unless ``or_none``."""
        self.open()
        empty = or_none and self.peek_token(TokenType.R_PAREN)
        found = () if empty else self.separated(parse)
        self.close()
        return found

    # --- names and values -------------------------------------------------------------------------

    def identifier(self, what: str = "identifier") -> str:
        """A name: folded to lower case unless quoted."""
        node = self.parser._parse_id_var(any_token=False)
        if not isinstance(node, exp.Identifier):
            self.expected(what)
        return fold(node)

    def placed_identifier(self) -> tuple[str, int]:
        """A name and its position."""
        position = self.position()
        return self.identifier(), position

    def dotted(self) -> list[str]:
        """Names with dots between them."""
        parts = [self.identifier()]
        while self.take_token(TokenType.DOT):
            parts.append(self.identifier())
        return parts

    def name(self) -> st.Name:
        """A name of up to three parts.

        Raises:
            SqlSyntaxError: there is no name, or one of more than three parts.
        """
        position = self.position()
        parts = self.dotted()
        if len(parts) > 3:
            raise SqlSyntaxError(
                f"qualified name did not have between 1 and 3 components: {'.'.join(parts)}",
                position=position,
            )
        return st.Name(PartialName(*reversed(parts)), position)

    def plain_name(self) -> st.Name:
        """A name of one part."""
        position = self.position()
        return st.Name(PartialName(self.identifier()), position)

    def plain_names(self) -> tuple[st.Name, ...]:
        """Names of one part, with commas between them."""
        return self.separated(Pieces.plain_name)

    def columns(self) -> tuple[tuple[str, int], ...]:
        """An optional list of names in parentheses, with their positions; empty where there is none."""
        if not self.peek_token(TokenType.L_PAREN):
            return ()
        return self.in_parentheses(Pieces.placed_identifier)

    def string(self) -> str:
        r"""A string literal's value, also of ``E'\t'`` and ``$$a$$``."""
        if not self.parser._match_set(_STRINGS):
            self.expected("literal string")
        return str(self.parser._prev.text)

    def boolean(self) -> bool:
        """A boolean option's value, with or without an equals sign; True where none is written."""
        equals = self.take_token(TokenType.EQ)
        token = self.parser._curr
        value = boolean_of(str(token.text)) if token else None
        if value is not None:
            self.parser._advance()
            return value
        if equals:
            self.expected("TRUE or FALSE")
        return True

    # --- clauses that many statements have ----------------------------------------------------------

    def if_exists(self) -> bool:
        """IF EXISTS."""
        return self.take("IF", "EXISTS")

    def if_not_exists(self) -> bool:
        """IF NOT EXISTS."""
        return self.take("IF", "NOT", "EXISTS")

    def in_cluster(self) -> st.Name | None:
        """An optional IN CLUSTER c."""
        return self.plain_name() if self.take("IN", "CLUSTER") else None

    # --- expressions and queries --------------------------------------------------------------------

    def expression(self) -> exp.Expr:
        """A scalar expression; `meta["span"]` has its start and end in the text."""
        return self._spanned(self.parser._parse_disjunction)

    def operand(self) -> exp.Expr:
        """As `expression`, where NOT and NULL after it are the statement's: the DEFAULT of a column."""
        return self._spanned(self.parser._parse_bitwise)

    def _spanned(self, parse: Callable[[], Any]) -> exp.Expr:
        start = self.position() - 1
        node: exp.Expr | None = parse()
        if node is None:
            self.expected("an expression")
        node.meta["span"] = (start, self.read_to())
        return node

    def data_type(self) -> exp.DataType:
        """A type."""
        made: exp.DataType = self.parser.data_type()
        return made

    def query(self) -> exp.Expr:
        """A query."""
        made: exp.Expr = self.parser.parse_query()
        return made

    def select(self) -> st.Select:
        """A query with an optional AS OF."""
        start = self.position() - 1
        query = self.query()
        span = (start, self.read_to())
        as_of = None
        at_least = False
        if self.take_token(TokenType.ALIAS):
            self.expect("OF")
            at_least = self.take("AT", "LEAST")
            if self.at_end() or self.peek_token(TokenType.SEMICOLON):
                self.expected("a timestamp value after 'AS OF'")
            as_of = self.expression()
        return st.Select(self.source, query, span, as_of, at_least)

    def read_to(self) -> int:
        """Where what was read ends in the text: the place behind the last token."""
        return int(self.parser._prev.end) + 1


#: Parses a statement from after the words that it begins with, or (a whole one) from its first word.
Parse = Callable[[Pieces], st.Statement]
#: A family's statements, by the words that they begin with.
Statements = tuple[tuple[Words, Parse], ...]
#: Those that have another statement in them; their functions are given the one that parses any statement.
Nesting = tuple[tuple[Words, Callable[[Pieces, Parse], st.Statement]], ...]
