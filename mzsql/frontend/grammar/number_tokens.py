"""Number tokens as in PostgreSQL 16: ``1_000``, ``.5``, ``1e9``, ``0xFF``, ``0o17``, ``0b101``.

Promise: the text of a number token is the number in decimal digits. For a malformed number it is the text as written,
and `problem` says what is wrong, so that it never becomes a number followed by an alias.
"""

from __future__ import annotations

import re

from sqlglot.tokenizer_core import Token, TokenizerCore, TokenType

_DIGITS = "[0-9](?:_?[0-9])*"
_EXPONENT = f"(?:[eE][-+]?{_DIGITS})?"
_BASES = {"x": 16, "o": 8, "b": 2}
_NUMBER = re.compile(
    rf"0[xX](?:_?[0-9a-fA-F])+|0[oO](?:_?[0-7])+|0[bB](?:_?[01])+|{_DIGITS}(?:\.(?:{_DIGITS})?)?{_EXPONENT}"
)
#: The fraction after a point, which is a token of its own.
_FRACTION = re.compile(f"{_DIGITS}{_EXPONENT}")
#: ``@``, the operator, and ``$`` before a parameter's number, as `numbered` writes it. What sqlglot has for it makes any
#: word behind it a name.
AT_SIGN = TokenType.SESSION_PARAMETER
_PARAMETER = re.compile("[0-9]+")
#: What must not directly follow a number.
_JUNK = re.compile(r"[eE][-+]|[^\W\d]")
_KNOWN = re.compile(r"[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?")
_BASE_NAMES = {"x": "hexadecimal", "o": "octal", "b": "binary"}
#: A number in another base with more digits than this is refused: Python limits conversion to decimal.
_MOST_DIGITS = 1000


def is_parameter(sign: Token, number: Token) -> bool:
    """Whether two tokens that follow each other are a parameter of PREPARE."""
    return (
        sign.token_type == AT_SIGN
        and number.token_type == TokenType.NUMBER
        and sign.end + 1 == number.start
    )


class NumberTokens(TokenizerCore):
    """sqlglot's tokenizer with PostgreSQL's numbers; sqlglot reads ``1e9+1`` as one number, and ``1_000`` as 1 with an
    alias.
    """

    __slots__ = ()

    def _scan_number(self) -> None:
        last = self.tokens[-1] if self.tokens else None
        pattern = _NUMBER
        if last is not None and last.token_type == AT_SIGN and last.end + 1 == self._start:
            pattern = _PARAMETER
        elif last is not None and last.token_type == TokenType.DOT and last.end + 1 == self._start:
            pattern = _FRACTION
        found = pattern.match(self.sql, self._start)
        assert found is not None  # it begins with a digit
        text, end = _in_digits(found[0]), found.end()
        junk = None if pattern is _PARAMETER else _JUNK.match(self.sql, end)
        if junk is not None:
            end = junk.end()
            text = self.sql[self._start : end]
        if end > self._current:
            self._advance(end - self._current)
        self._add(TokenType.NUMBER, text)


def _in_digits(number: str) -> str:
    base = _BASES.get(number[1:2].lower())
    bare = number.replace("_", "")
    if base is None:
        return bare
    return str(int(bare, 0)) if len(bare) <= _MOST_DIGITS else bare


def problem(text: str) -> str | None:
    """What is wrong with a number token's text; None where it is a number."""
    if _KNOWN.fullmatch(text):
        return None
    if len(text) > _MOST_DIGITS:
        return f"invalid number: {text[:64]}"
    base = _BASE_NAMES.get(text[1:].lower())
    if text.startswith("0") and base is not None:
        return f'invalid {base} integer at or near "{text}"'
    return f'trailing junk after numeric literal at or near "{text}"'
