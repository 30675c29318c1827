"""The dialect: sqlglot's Materialize dialect, extended where it lacks something and restricted where it guesses.

Promise: expressions and queries come out as the user wrote them. No function is renamed (every call is an `exp.Anonymous`, but for those
with a syntax of their own), nothing is folded, and what the dialect does not have is an `SqlSyntaxError` with the position and what was
expected there. What a query carries beyond sqlglot's arguments is in `meta`: ``group_size_options`` of a `Select`, ``mutually_recursive``
of a `With`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NoReturn

from sqlglot import expressions as exp
from sqlglot.dialects.materialize import Materialize
from sqlglot.errors import ParseError
from sqlglot.parsers.materialize import MaterializeParser
from sqlglot.tokenizer_core import Token, TokenizerCore, TokenType

from mzsql.frontend.grammar.clauses import ClauseGrammar
from mzsql.frontend.grammar.containers import ContainerGrammar
from mzsql.frontend.grammar.number_tokens import AT_SIGN, NumberTokens
from mzsql.frontend.grammar.options import group_size_options
from mzsql.frontend.grammar.queries import QueryGrammar
from mzsql.frontend.grammar.recursion import recursion_limit
from mzsql.frontend.grammar.scalars import ScalarGrammar, normalize, normalized, position, substring
from mzsql.frontend.grammar.strict import StrictGrammar, extract
from mzsql.frontend.grammar.types import TypeGrammar
from mzsql.frontend.grammar.words import FOREIGN, KEYWORDS
from mzsql.repr.errors import Unsupported
from mzsql.repr.interrupt import check_for_interrupts

_GRAMMAR_FUNCTIONS = ("CAST", "EXTRACT", "OVERLAY", "SUBSTRING", "TRIM")
_INTERVAL_FIELDS = ("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND")
_PUNCTUATION = {
    TokenType.L_PAREN: "left parenthesis",
    TokenType.R_PAREN: "right parenthesis",
    TokenType.L_BRACKET: "left square bracket",
    TokenType.R_BRACKET: "right square bracket",
    TokenType.L_BRACE: "left curly bracket",
    TokenType.R_BRACE: "right curly bracket",
    TokenType.COMMA: "comma",
    TokenType.DOT: "dot",
    TokenType.SEMICOLON: "semicolon",
    TokenType.STAR: "star",
}
_CONSTANTS = (TokenType.NULL, TokenType.TRUE, TokenType.FALSE)
#: Reserved words: names only if quoted.
RESERVED = frozenset(
    [
        "ALL",
        "AND",
        "AS",
        "ASC",
        "CASE",
        "CAST",
        "CHECK",
        "CONSTRAINT",
        "CREATE",
        "CROSS",
        "DEFAULT",
        "DESC",
        "DISTINCT",
        "DO",
        "ELSE",
        "END",
        "EXCEPT",
        "FALSE",
        "FETCH",
        "FOR",
        "FOREIGN",
        "FROM",
        "FULL",
        "GRANT",
        "GROUP",
        "HAVING",
        "IN",
        "INNER",
        "INTERSECT",
        "INTO",
        "IS",
        "JOIN",
        "LATERAL",
        "LEFT",
        "LIKE",
        "LIMIT",
        "NATURAL",
        "NOT",
        "NULL",
        "OFFSET",
        "ON",
        "OR",
        "ORDER",
        "PRIMARY",
        "REFERENCES",
        "RETURNING",
        "RIGHT",
        "SELECT",
        "SOME",
        "TABLE",
        "THEN",
        "TO",
        "TRUE",
        "UNION",
        "UNIQUE",
        "USING",
        "VALUES",
        "WHEN",
        "WHERE",
        "WINDOW",
        "WITH",
    ]
)
_EXPECTING = {
    "(": "left parenthesis",
    ")": "right parenthesis",
    "[": "left square bracket",
    "]": "right square bracket",
}


def describe(token: Token | None) -> str:
    """A token as an error message names it: ``identifier "x"``, ``right parenthesis``, ``EOF``."""
    if not token:
        return "EOF"
    kind = token.token_type
    if kind in _PUNCTUATION:
        return _PUNCTUATION[kind]
    if kind == TokenType.STRING:
        return f'string literal "{_shortened(token.text)}"'
    if kind == TokenType.NUMBER:
        return f'number "{token.text}"'
    word = token.text.upper()
    if kind == TokenType.VAR and (word in KEYWORDS or word in RESERVED):
        return word
    if kind == TokenType.VAR:
        return f'identifier "{_shortened(token.text.lower())}"'  # as it is folded
    if kind == TokenType.IDENTIFIER:
        return f'identifier "{_shortened(token.text)}"'
    if token.text[:1].isalpha():
        return token.text.upper()
    return f'operator "{token.text}"'


def _shortened(text: str) -> str:
    """A text cut for a message."""
    return text if len(text) <= 64 else f"{text[:60]}…"


class Parser(
    StrictGrammar, QueryGrammar, ClauseGrammar, ContainerGrammar, ScalarGrammar, TypeGrammar
):
    """The parser of queries and expressions; statements are in `mzsql.frontend.parse.parse`."""

    # No function is rewritten: the table of functions decides what a name means.
    FUNCTIONS: ClassVar[dict[str, Callable[..., Any]]] = {}
    FUNCTION_PARSERS: ClassVar[dict[str, Callable[..., Any]]] = {
        **{name: MaterializeParser.FUNCTION_PARSERS[name] for name in _GRAMMAR_FUNCTIONS},
        "NORMALIZE": normalize,
        "SUBSTRING": substring,
        "POSITION": position,
        "EXTRACT": extract,
    }
    NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Callable[..., Any]]] = {
        name: MaterializeParser.NO_PAREN_FUNCTION_PARSERS[name] for name in ("CASE", "MAP")
    }
    SUBQUERY_PREDICATES: ClassVar[dict[TokenType, Any]] = {TokenType.EXISTS: exp.Exists}
    QUERY_MODIFIER_PARSERS: ClassVar[dict[TokenType, Callable[..., Any]]] = {
        kind: MaterializeParser.QUERY_MODIFIER_PARSERS[kind]
        for kind in (
            TokenType.WHERE,
            TokenType.GROUP_BY,
            TokenType.HAVING,
            TokenType.QUALIFY,
            TokenType.WINDOW,
            TokenType.ORDER_BY,
            TokenType.LIMIT,
            TokenType.FETCH,
            TokenType.OFFSET,
        )
    }

    # --- errors ----------------------------------------------------------------------------------

    def raise_error(self, message: str, token: Token | None = None) -> NoReturn:
        """Raise sqlglot's error with the dialect's message, at the token's position.

        Raises:
            SyntaxProblem: always.
        """
        at = token or self._curr or None
        text = message
        if message.startswith("Expecting "):
            what = message.removeprefix("Expecting ").strip()
            text = f"Expected {_EXPECTING.get(what, what)}, found {describe(at)}"
        elif message.startswith("Invalid expression"):
            text = f"Expected end of statement, found {describe(at)}"
        elif message.startswith("Required keyword"):
            text = f"Expected an expression, found {describe(at)}"
        elif message.startswith("Expected END"):
            text = f"Expected END, found {describe(self._curr or None)}"
            at = self._curr or None
        elif message.startswith("Found multiple"):
            which = "OFFSET" if "OFFSET" in message else "LIMIT/FETCH"
            text = f"multiple {which} clauses not allowed"
        elif message.startswith("Expected table name"):
            text = f"Expected identifier, found {describe(at)}"
        elif message.startswith("Expected ") and ", found" not in message:
            text = f"{message}, found {describe(at)}"
        raise SyntaxProblem(text, at.start + 1 if at else len(self.sql.rstrip()) + 1)

    def _parse_csv(self, parse_method: Any, sep: TokenType = TokenType.COMMA) -> list[Any]:
        item = parse_method()
        items = [] if item is None else [item]
        while self._match(sep):
            item = parse_method()
            if item is None:
                self.expected("an expression")
            items.append(item)
        return items

    def expected(self, what: str) -> NoReturn:
        """Fail, since ``what`` was expected at this token."""
        self.raise_error(f"Expected {what}, found {describe(self._curr or None)}")

    # --- queries ---------------------------------------------------------------------------------

    def _parse_statement(self) -> exp.Expr | None:
        # sqlglot calls this for the body of a WITH and of a CTE, which must be a query in this dialect.
        query = self.parse_query()
        body = query
        while isinstance(body, exp.Subquery) and body.is_wrapper:
            body = body.this
        # sqlglot's VALUES has no place for a WITH.
        return _selected(query) if isinstance(body, exp.Values) else query

    def parse_query(self) -> exp.Expr:
        """A query: WITH …, SELECT, VALUES, TABLE, set operations, parentheses."""
        query: exp.Expr | None
        if self._curr and self._curr.token_type == TokenType.L_PAREN:
            query = self._parse_paren()
            if isinstance(query, exp.Query):
                query = self._parse_set_operations(query)
        else:
            query = self._parse_select()
        if not isinstance(query, exp.Query | exp.Values):
            self.expected("a query")
        return self._parse_query_modifiers(query)  # type: ignore[no-any-return]

    def _parse_with(self, skip_with_token: bool = False) -> exp.With | None:
        if not skip_with_token and not self._match(TokenType.WITH):
            return None
        of_itself = self._match(TokenType.RECURSIVE)
        recursive = not of_itself and self._match_text_seq("MUTUALLY", "RECURSIVE")
        limit = recursion_limit(self) if recursive else None
        ctes = self._parse_csv(self._recursive_binding if recursive else self._parse_cte)
        if not ctes:
            self.expected("identifier")
        if self._curr and self._curr.token_type == TokenType.WITH:
            self.expected("SELECT, VALUES, or a subquery in the query body")
        node = exp.With(expressions=ctes)
        if recursive:
            node.meta["mutually_recursive"] = limit
        if of_itself:
            node.meta["recursive"] = True
        return node

    def _recursive_binding(self) -> exp.CTE:
        name = self._parse_id_var()
        if name is None:
            self.expected("identifier")
        columns = self._parse_wrapped_csv(self._typed_column)
        if not self._match(TokenType.ALIAS):
            self.expected("AS")
        query = self._parse_wrapped(self.parse_query)
        cte = exp.CTE(
            this=query,
            alias=exp.TableAlias(this=name, columns=[c.this for c in columns]),
        )
        cte.meta["types"] = [c.args["kind"] for c in columns]
        return cte

    def _typed_column(self) -> exp.ColumnDef:
        name = self._parse_id_var()
        if name is None:
            self.expected("identifier")
        return exp.ColumnDef(this=name, kind=self.data_type())

    def _parse_cte(self) -> exp.CTE:
        alias = self._parse_table_alias(self.ID_VAR_TOKENS)
        if not alias or not alias.this:
            self.expected("identifier")
        if not self._match(TokenType.ALIAS):
            self.expected("AS")
        if self._match_text_seq("NOT", "MATERIALIZED") or self._match_text_seq("MATERIALIZED"):
            pass  # a hint of PostgreSQL's that changes no answer
        return exp.CTE(this=self._parse_wrapped(self.parse_query), alias=alias)

    def _parse_query_modifiers(self, this: Any) -> Any:
        this = super()._parse_query_modifiers(this)
        if isinstance(this, exp.Select) and self._at_options():
            self._advance()
            this.meta["group_size_options"] = group_size_options(self)
            this = super()._parse_query_modifiers(this)
        return this

    def _at_options(self) -> bool:
        return bool(
            self._curr
            and self._curr.token_type == TokenType.VAR
            and self._curr.text.upper() == "OPTIONS"
            and self._next
            and self._next.token_type == TokenType.L_PAREN
        )

    def _at_as_of(self) -> bool:
        return bool(
            self._curr
            and self._curr.token_type == TokenType.ALIAS
            and self._next
            and self._next.token_type == TokenType.VAR
            and self._next.text.upper() == "OF"
        )

    def _parse_table_alias(self, alias_tokens: Any = None) -> exp.TableAlias | None:
        if self._at_options() or self._at_as_of() or self._at_reserved():
            return None
        return super()._parse_table_alias(alias_tokens)

    def _at_reserved(self) -> bool:
        # sqlglot accepts many keywords as aliases; FETCH and GROUP, for example, begin a clause.
        return bool(
            self._curr
            and self._curr.token_type not in (TokenType.IDENTIFIER, TokenType.ALIAS)
            and self._curr.text.upper() in RESERVED
        )

    def _parse_alias(self, this: exp.Expr | None, explicit: bool = False) -> exp.Expr | None:
        if this is not None and not explicit and self._match_set(_CONSTANTS):
            # A reserved word may be a column alias where no expression can continue with it.
            name = exp.to_identifier(self._prev.text.lower())
            name.meta.update(start=self._prev.start, end=self._prev.end)
            return exp.Alias(this=this, alias=name)
        if self._at_options() or self._at_as_of() or self._at_reserved():
            return this
        behind = self._next.token_type if self._next else None
        if behind in (TokenType.NUMBER, TokenType.STRING) and self._match(TokenType.ALIAS):
            self.expected("identifier")
        return super()._parse_alias(this, explicit)

    def _parse_group(self, skip_group_by_token: bool = False) -> exp.Group | None:
        group = super()._parse_group(skip_group_by_token)
        if group is not None and not any(group.args.values()):
            self.expected("an expression")
        return group

    def _parse_unnest(self, with_alias: bool = True) -> exp.Unnest | None:  # noqa: ARG002
        return None  # a table function like any other

    # --- expressions -----------------------------------------------------------------------------

    def _parse_type(self, *args: Any, **kwargs: Any) -> Any:
        check_for_interrupts()
        typed = self._typed_literal()
        return super()._parse_type(*args, **kwargs) if typed is None else typed

    def _typed_literal(self) -> exp.Expr | None:
        """``type 'text'``: a typed literal. What follows (``::``, a subscript) applies to its value."""
        name = self._curr
        word = self.plain_word() if name else None
        if not name or word is not None or name.text.upper() in RESERVED:
            return word
        kind: exp.Expr | None = None
        if name.token_type == TokenType.VAR:
            if not self._next or self._next.token_type != TokenType.STRING:
                return None
            self._advance()
            kind = exp.DataType(this=exp.DType.USERDEFINED, kind=name.text)
            kind.meta.update(parts=(name.text.lower(),), named=(name.start, name.end + 1))
        else:
            kind = self.type_before_text()
        if kind is None:
            return None
        self._advance()
        node = exp.Cast(this=exp.Literal.string(self._prev.text), to=kind)
        node.meta.update(start=name.start, end=self._prev.end)
        return self._parse_column_ops(node)

    def _parse_function_call(self, *args: Any, **kwargs: Any) -> exp.Expr | None:
        # `= ANY (…)`, `= ALL (…)`, `= SOME (…)`: sqlglot knows only some of them.
        if self._next and self._next.token_type == TokenType.L_PAREN:
            quantifier = self._curr.text.upper()
            if quantifier in ("ANY", "ALL", "SOME") and self._curr.token_type != (
                TokenType.IDENTIFIER
            ):
                token = self._curr
                self._advance(2)
                inner: exp.Expr | None = self._parse_select() or self._parse_disjunction()
                if inner is None:
                    self.expected("an expression")
                if isinstance(inner, exp.Query):
                    inner = self._parse_set_operations(inner)
                self._match_r_paren()
                node = exp.All(this=inner) if quantifier == "ALL" else exp.Any(this=inner)
                node.update_positions(token)
                return node
        return super()._parse_function_call(*args, **kwargs)

    def _parse_is(self, this: exp.Expr | None) -> exp.Expr | None:
        return normalized(self, this) or super()._parse_is(this)

    def _parse_interval(self, *_: Any, **__: Any) -> exp.Interval | None:
        index = self._index
        if not self._match(TokenType.INTERVAL):
            return None
        if not self._match(TokenType.STRING):
            self._retreat(index)
            return None
        token = self._prev
        unit = ""
        if self._curr and self._curr.text.upper().rstrip("S") in _INTERVAL_FIELDS:
            unit = self._curr.text.upper().rstrip("S")
            self._advance()
            if self._match_text_seq("TO"):
                if not self._curr or self._curr.text.upper().rstrip("S") not in _INTERVAL_FIELDS:
                    self._retreat(index + 1)
                    self.expected("end of statement")
                unit = f"{unit} TO {self._curr.text.upper().rstrip('S')}"
                self._advance()
            unit += self._second_precision(unit, index + 1)
            if self._curr and self._curr.token_type == TokenType.L_PAREN:
                self.expected("end of statement")
            if self._match_text_seq("TO"):
                self._retreat(index + 2)
                self.expected("end of statement")
        node = exp.Interval(
            this=exp.Literal.string(token.text), unit=exp.Var(this=unit) if unit else None
        )
        node.meta.update(start=token.start, end=token.end)
        return node

    def _second_precision(self, unit: str, text: int) -> str:
        """The number of fractional digits in ``SECOND(3)``; ``text`` is the index of the interval's text."""
        follows = self._curr and self._curr.token_type == TokenType.L_PAREN
        if not follows or not unit.endswith("SECOND"):
            return ""
        self._advance()
        if not self._curr or not self._curr.text.isdigit():
            # Then this is no interval: the word INTERVAL is taken for a name, as Materialize does.
            self._retreat(text)
            self.expected("end of statement")
        digits = self._curr.text
        if int(digits) > 6:
            at = self._curr.start + 1
            raise SyntaxProblem(f"SECOND precision must be (0, 6), have SECOND({digits})", at)
        self._advance()
        self._match_r_paren()
        return f"({digits})"


#: Tokens after which sqlglot would swallow the rest of a statement; FETCH is also a clause, and is kept.
_STATEMENT_WORDS = frozenset(Materialize.Tokenizer.COMMANDS - {TokenType.FETCH})


def _selected(query: exp.Expr) -> exp.Select:
    """``SELECT * FROM (query)``."""
    inner = query if isinstance(query, exp.Subquery) else exp.Subquery(this=query)
    return exp.Select(expressions=[exp.Star()], from_=exp.From(this=inner))


class SyntaxProblem(ParseError):
    """Becomes an `SqlSyntaxError`. A `ParseError`, since sqlglot catches those while it tries alternatives."""

    def __init__(self, message: str, position: int) -> None:
        super().__init__(message)
        self.message = message
        self.position = position


class Dialect(Materialize):
    """mzsql's dialect of SQL."""

    class Tokenizer(Materialize.Tokenizer):
        """No token swallows the rest of the line: every statement is parsed."""

        COMMANDS: ClassVar[set[TokenType]] = set()
        SINGLE_TOKENS: ClassVar[dict[str, TokenType]] = {
            **Materialize.Tokenizer.SINGLE_TOKENS,
            "@": AT_SIGN,
        }
        # There are no bit strings: b'1' is a typed literal of type b.
        BIT_STRINGS: ClassVar[list[Any]] = []
        KEYWORDS: ClassVar[dict[str, TokenType]] = {
            word: (TokenType.VAR if kind in _STATEMENT_WORDS else kind)
            for word, kind in Materialize.Tokenizer.KEYWORDS.items()
            # Without times that have a zone, current_time is a name as others are.
            if kind not in (TokenType.COMMENT, TokenType.OBJECT_IDENTIFIER, TokenType.CURRENT_TIME)
            and word not in FOREIGN
        }

        def _init_core(self) -> TokenizerCore:
            core = super()._init_core()
            # The tokenizer core was built with the dialect's tables; this subclass only reads numbers differently.
            core.__class__ = NumberTokens
            return core

    Parser = Parser


DIALECT = Dialect()
"""The dialect, which has no state; making one takes as long as reading a word."""


def check_sqlglot() -> None:
    """Check that the installed sqlglot can be extended.

    Raises:
        Unsupported: it is the compiled distribution, whose classes cannot be subclassed.
    """
    try:
        Dialect().parser()
    except TypeError as error:
        raise Unsupported(
            f"the compiled form of sqlglot cannot be extended by mzsql's dialect ({error})",
            hint="Remove it with: pip uninstall sqlglotc. sqlglot itself stays, in plain Python.",
        ) from error


__all__ = ["Dialect", "Parser", "SyntaxProblem", "check_sqlglot", "describe"]
