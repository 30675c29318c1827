"""Parsing names and values of variables in SET, SHOW, RESET, ALTER SYSTEM and ALTER ROLE."""

from __future__ import annotations

from sqlglot.tokenizer_core import TokenType

from mzsql.frontend.parse.pieces import Pieces


class VariableParser(Pieces):
    """Parses names and values of variables."""

    def variable_name(self) -> str:
        """A variable after SHOW or RESET; ``all`` for ALL."""
        if self.at("TRANSACTION", "ISOLATION", "LEVEL"):
            return "transaction_isolation"
        if self.at("TIME", "ZONE"):
            return "timezone"
        if self.at("ALL"):
            return "all"
        return self.identifier()

    def named_variable(self) -> str:
        """A variable's name, followed by TO or an equals sign."""
        name = self.identifier()
        if not self.at("TO") and not self.p._match(TokenType.EQ):
            self.p.expected("equals sign or TO")
        return name

    def set_name(self) -> str:
        """A session variable after SET, with what separates it from its values."""
        if self.at("TIME", "ZONE"):
            return "timezone"
        if self.at("SCHEMA"):
            if not self.at("TO"):
                self.p._match(TokenType.EQ)
            return "search_path"
        if self.at("NAMES"):
            return "client_encoding"
        return self.named_variable()

    def reset_name(self) -> str:
        """A session variable after RESET."""
        return "search_path" if self.at("SCHEMA") else self.variable_name()

    def set_values(self) -> tuple[str, ...] | None:
        """The values of SET; None: DEFAULT."""
        if self.at("DEFAULT"):
            return None
        found = [self._value()]
        while self.p._match(TokenType.COMMA):
            found.append(self._value())
        return tuple(found)

    def _value(self) -> str:
        p = self.p
        sign = "-" if p._match(TokenType.DASH) else ""
        token = p._curr
        if not token or token.token_type in (TokenType.R_PAREN, TokenType.L_PAREN, TokenType.COMMA):
            p.expected("variable value")
        p._advance()
        text = str(token.text)
        quoted = token.token_type in (TokenType.STRING, TokenType.IDENTIFIER)
        return sign + (text if quoted else text.lower())
