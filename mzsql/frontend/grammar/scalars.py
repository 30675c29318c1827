"""The grammar of prefix operators, dates and times, where sqlglot's differs from PostgreSQL's or Materialize's.

Promise: a minus before a number is part of the number, also before ``::`` (``-1::uint2`` casts -1). Any other prefix
operator binds looser than ``+``, as in PostgreSQL (``~1 + 1`` is ``~(1 + 1)``).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any, ClassVar

from sqlglot import expressions as exp
from sqlglot.parsers.materialize import MaterializeParser
from sqlglot.tokenizer_core import TokenType

from mzsql.expr.functions.text.normal_forms import FORMS
from mzsql.frontend.grammar.number_tokens import AT_SIGN, is_parameter
from mzsql.frontend.grammar.strict import negation

#: Types whose literals have a syntax of their own, and names that are no types here.
_NOT_BEFORE_TEXT = frozenset(
    {TokenType.INTERVAL, TokenType.IDENTIFIER, TokenType.MAP, TokenType.LIST, TokenType.ARRAY}
)
#: Tokens before which ON can only be a column.
_BEHIND_A_COLUMN = (
    TokenType.COMMA,
    TokenType.FROM,
    TokenType.EQ,
    TokenType.NEQ,
    TokenType.LIKE,
    TokenType.IN,
    TokenType.IS,
)
#: An octal or hexadecimal escape, after any number of escaped backslashes.
_NUMBERED = re.compile(r"(?<!\\)(?:\\\\)*\\([0-7xX])")

#: An escape of ``E'…'``: a character's number in four or eight digits, or any other.
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)


def _minus(parser: Any) -> Any:
    token = parser._prev
    number = bool(parser._curr) and parser._curr.token_type == TokenType.NUMBER
    operand = parser._parse_unary()
    if operand is None:
        parser.expected("an expression")
    inner = operand
    while number and isinstance(inner, exp.Cast | exp.AtTimeZone):
        inner = inner.this
    negative = exp.Neg(this=inner.copy() if inner is not operand else inner)
    negative.meta.update(start=token.start, end=token.end)
    if inner is operand:
        return negative
    inner.replace(negative)
    return operand


def _complement(parser: Any) -> Any:
    operand = parser._parse_term()
    if operand is None:
        parser.expected("an expression")
    return parser.expression(exp.BitwiseNot(this=operand))


def _absolute(parser: Any) -> Any:
    """``@ x``, and ``$1`` as `numbered` writes it: a number close behind."""
    if parser._curr and is_parameter(parser._prev, parser._curr):
        return parser._parse_column_ops(parser._parse_parameter())
    operand = parser._parse_term()
    if operand is None:
        parser.expected("an expression")
    return parser.expression(exp.Anonymous(this="abs", expressions=[operand]))


def position(parser: Any) -> Any:
    """``position(substring IN string)``, after its opening parenthesis."""
    part = parser._parse_bitwise()
    if part is None:
        parser.expected("an expression")
    if not parser._match(TokenType.IN):
        parser.expected("IN")
    whole = parser._parse_bitwise()
    if whole is None:
        parser.expected("an expression")
    if not parser._curr or parser._curr.token_type != TokenType.R_PAREN:
        parser.expected("right parenthesis")
    return parser.expression(exp.StrPosition(this=whole, substr=part))


def substring(parser: Any) -> Any:
    """``substring(text FROM … FOR …)`` and ``substring(text SIMILAR pattern ESCAPE letter)``, after the opening
    parenthesis.
    """
    node = parser._parse_substring()
    if node.args.get("zero_start") is not None:
        return parser.expression(
            exp.Anonymous(this="substring", expressions=list(node.args.values()))
        )
    if parser._match_text_seq("SIMILAR"):
        parts = [parser._parse_bitwise()]
        if not parser._match_text_seq("ESCAPE"):
            parser.expected("ESCAPE")
        parts.append(parser._parse_bitwise())
        if None in parts:
            parser.expected("an expression")
        node.set("start", parts[0])
        node.set("length", parts[1])
        node.meta["similar"] = True
    return node


def normalized(parser: Any, text: Any) -> Any:
    """``IS [NOT] [form] NORMALIZED``, after IS; None where something else follows."""
    index = parser._index
    negated = bool(parser._match(TokenType.NOT))
    form = next((one for one in FORMS if parser._match_text_seq(one)), FORMS[0])
    if not parser._match_text_seq("NORMALIZED"):
        parser._retreat(index)
        return None
    made = exp.Anonymous(this="normalize", expressions=[text.copy(), exp.Literal.string(form)])
    same = parser.expression(exp.EQ(this=text, expression=made))
    return parser.expression(exp.Not(this=exp.Paren(this=same))) if negated else same


def normalize(parser: Any) -> Any:
    """``normalize(text [, form])``, after its opening parenthesis; the form is a keyword."""
    text = parser._parse_disjunction()
    if text is None:
        parser.expected("an expression")
    form: str = FORMS[0]
    if parser._match(TokenType.COMMA):
        word = parser._curr.text.upper() if parser._curr else ""
        if word not in FORMS or parser._curr.token_type != TokenType.VAR:
            parser.expected(f"one of {' or '.join(FORMS)}")
        form = word
        parser._advance()
    if not parser._curr or parser._curr.token_type != TokenType.R_PAREN:
        parser.expected("right parenthesis")
    return parser.expression(
        exp.Anonymous(this="normalize", expressions=[text, exp.Literal.string(form)])
    )


def _dollar_quoted(parser: Any, token: Any) -> Any:
    return parser.expression(exp.Literal.string(token.text))


def _escaped(parser: Any, token: Any) -> Any:
    r"""``E'…'``. Escapes by the number of a byte, ``\101`` and ``\x41``, are refused as in Materialize."""
    found = _NUMBERED.search(parser.sql[token.start : token.end + 1])
    if found is not None:
        kind = "hexadecimal" if found[1] in "xX" else "octal"
        parser.raise_error(f"{kind} escapes are not supported", token)
    problem = _unicode_problem(parser.sql[token.start : token.end + 1])
    if problem is not None:
        parser.raise_error(problem, token)
    return parser.expression(exp.ByteString(this=token.text))


def _unicode_problem(written: str) -> str | None:
    r"""What is wrong with the ``\u`` and ``\U`` of a text as it is written; None where nothing is."""
    half_at = None  # the end of the first half of a surrogate pair
    for found in _ESCAPE.finditer(written):
        digits = found[1] or found[2]
        if half_at is not None and (not digits or found.start() != half_at):
            break
        if not digits:
            if found[3] in "uU":
                return "invalid Unicode escape"
            continue
        number = int(digits, 16)
        if not 0 < number <= sys.maxunicode:
            return "invalid Unicode escape value"
        if (0xDC00 <= number <= 0xDFFF) != (half_at is not None):
            return "invalid Unicode surrogate pair"
        half_at = found.end() if 0xD800 <= number <= 0xDBFF else None
    return None if half_at is None else "invalid Unicode surrogate pair"


def _unicode(parser: Any, token: Any) -> Any:
    r"""``U&'d\\0061t\\+000061' [UESCAPE '!']``: characters by their numbers.

    Raises:
        SyntaxProblem: by way of the parser: an escape that is none, or of no character.
    """
    escape = "\\"
    if parser._match_text_seq("UESCAPE"):
        if not parser._match(TokenType.STRING) or not _is_escape(parser._prev.text):
            parser.raise_error("invalid Unicode escape character", token)
        escape = parser._prev.text
    text = unescaped(token.text, escape)
    if text is None:
        parser.raise_error("invalid Unicode escape value", token)
    return parser.expression(exp.Literal.string(text))


def _is_escape(letter: str) -> bool:
    return len(letter) == 1 and not (letter.isalnum() or letter.isspace() or letter in "+'\"")


def unescaped(text: str, escape: str) -> str | None:
    """A text with Unicode escapes replaced by their characters; None where one is malformed."""
    sign = re.escape(escape)
    pieces = re.split(f"({sign}{sign}|{sign}[0-9a-fA-F]{{4}}|{sign}[+][0-9a-fA-F]{{6}})", text)
    out: list[str] = []
    for i, piece in enumerate(pieces):
        if i % 2 == 0:
            if escape in piece:
                return None
            out.append(piece)
        elif piece == escape * 2:
            out.append(escape)
        else:
            number = int(piece.removeprefix(escape).lstrip("+"), 16)
            if not 0 < number <= sys.maxunicode:
                return None
            out.append(chr(number))
    try:
        # Surrogate pairs are written as two escapes.
        return "".join(out).encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        return None


class ScalarGrammar(MaterializeParser):
    """The parser's methods for scalar operators and literals."""

    def _parse_lambda(self, alias: bool = False) -> Any:
        """A call's argument: ``name => value``, ``VARIADIC array``, or an expression."""
        name, follows = self._curr, self._next
        if name and follows and follows.token_type == TokenType.FARROW:
            key = self._parse_id_var()
            self._advance()
            value = self._parse_disjunction()
            if key is None or value is None:
                self.raise_error("Expected an expression")
            return self.expression(exp.PropertyEQ(this=key, expression=value))
        if (
            name
            and name.token_type not in (TokenType.STRING, TokenType.IDENTIFIER)
            and name.text.upper() == "VARIADIC"
            and follows
            and follows.token_type not in (TokenType.COMMA, TokenType.R_PAREN)
        ):
            self._advance()
            array = self._parse_disjunction()
            if array is None:
                self.raise_error("Expected an expression")
                return None
            if not self._curr or self._curr.token_type != TokenType.R_PAREN:
                self.raise_error("Expected right parenthesis")
            array.meta["variadic"] = True
            return array
        return super()._parse_lambda(alias)

    def _parse_primary(self) -> Any:
        first, second = self._curr, self._next
        if (
            first
            and second
            and first.token_type == second.token_type == TokenType.STRING
            and "\n" not in self.sql[first.end + 1 : second.start]
        ):
            # Adjacent strings are one only if a line break separates them.
            self._advance()
            self.raise_error("Expected end of statement")
        return super()._parse_primary()

    def plain_word(self) -> exp.Expr | None:
        """USER or CURRENT_ROLE without parentheses, where it is no longer name; or ON as a column."""
        token, follows = self._curr, self._next.token_type if self._next else None
        name = token.text.lower()
        if token.token_type == TokenType.ON and follows in _BEHIND_A_COLUMN:
            # SHOW INDEXES has a column named on.
            self._advance()
            return self._parse_column_ops(exp.column(exp.to_identifier(name)))
        if token.token_type != TokenType.VAR or name not in ("user", "current_role"):
            return None
        if follows in (TokenType.DOT, TokenType.L_PAREN, TokenType.STRING):
            return None
        self._advance()
        return self.expression(exp.Anonymous(this=name))

    def type_before_text(self) -> exp.DataType | None:
        """The type of a typed literal, such as ``timestamp with time zone`` or ``char(2)``; None where none begins
        here.
        """
        first = self._curr.token_type
        if first not in self.TYPE_TOKENS or first in _NOT_BEFORE_TEXT:
            return None
        index = self._index
        kind = self._parse_types(check_func=True, allow_identifiers=False)
        before = bool(self._curr) and self._curr.token_type == TokenType.STRING
        if isinstance(kind, exp.DataType) and before:
            return kind
        self._retreat(index)
        return None

    # After AS any word is a name.
    RESERVED_TOKENS: ClassVar[set[TokenType]] = MaterializeParser.RESERVED_TOKENS - {
        TokenType.SELECT
    }
    PRIMARY_PARSERS: ClassVar[dict[TokenType, Callable[..., Any]]] = {
        **{k: v for k, v in MaterializeParser.PRIMARY_PARSERS.items() if k != AT_SIGN},
        TokenType.BYTE_STRING: _escaped,
        TokenType.HEREDOC_STRING: _dollar_quoted,
        TokenType.UNICODE_STRING: _unicode,
        TokenType.RAW_STRING: _dollar_quoted,
    }
    PLACEHOLDER_PARSERS: ClassVar[dict[TokenType, Callable[..., Any]]] = {
        **MaterializeParser.PLACEHOLDER_PARSERS,
        AT_SIGN: lambda self: self._parse_parameter(),
    }
    UNARY_PARSERS: ClassVar[dict[TokenType, Callable[..., Any]]] = {
        **MaterializeParser.UNARY_PARSERS,
        TokenType.DASH: _minus,
        TokenType.NOT: negation,
        TokenType.TILDE: _complement,
        TokenType.RLIKE: _complement,
        AT_SIGN: _absolute,
    }
