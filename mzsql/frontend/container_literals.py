"""The texts of arrays, lists and maps, taken apart.

Promise: what PostgreSQL and Materialize print for a value is read back as that value. Elements stay texts here: the element's own reader
says what they mean. A text that is none says so with what was expected and where.
"""

from __future__ import annotations

from typing import Any, NoReturn

from mzsql.repr.errors import DataError
from mzsql.repr.types import SqlType

_SPACE = " \t\n\r\v\f"


def parse(text: str, typ: SqlType) -> Any:
    """Lists of texts, dicts of texts, None for NULL; nested as `typ` is.

    Raises:
        DataError: ``invalid input syntax for type list: …: "…"`` (22P02).
    """
    reader = _Reader(text, typ)
    reader.skip_space()
    value = reader.value(typ)
    reader.skip_space()
    if reader.at < len(text):
        reader.fail("malformed literal; unexpected characters after the closing brace")
    return value


class _Reader:
    """A text, and how far it is read."""

    def __init__(self, text: str, typ: SqlType) -> None:
        self.text, self.typ, self.at = text, typ, 0

    def fail(self, detail: str) -> NoReturn:
        """Raise the error of a text that is no value."""
        raise DataError(
            f'invalid input syntax for type {self.typ.kind}: {detail}: "{self.text}"',
            sqlstate="22P02",
        )

    def peek(self) -> str:
        """The next character; empty at the end."""
        return self.text[self.at : self.at + 1]

    def skip_space(self) -> None:
        """Pass over white space."""
        while self.peek() and self.peek() in _SPACE:
            self.at += 1

    def take(self, token: str) -> bool:
        """Pass over `token` if it comes next."""
        if not self.text.startswith(token, self.at):
            return False
        self.at += len(token)
        return True

    def value(self, typ: SqlType) -> Any:
        """A value in braces."""
        if not self.take("{"):
            found = self.peek()
            self.fail(f"expected '{{', found {found or 'empty string'}")
        items: list[Any] = []
        entries: dict[str, Any] = {}
        self.skip_space()
        if self.take("}"):
            return entries if typ.kind == "map" else items
        while True:
            self.skip_space()
            if typ.kind == "map":
                key = self.word("=>")
                if key is None:
                    self.fail("map key cannot be null")
                self.skip_space()
                if not self.take("=>"):
                    self.fail("expected =>")
                self.skip_space()
                entries[key] = self.element(typ)
            else:
                items.append(self.element(typ))
            self.skip_space()
            if self.take(","):
                continue
            if self.take("}"):
                return dict(sorted(entries.items())) if typ.kind == "map" else items
            self.fail("expected ',' or '}', found " + (self.peek() or "end of text"))

    def element(self, typ: SqlType) -> Any:
        """An element: in braces where the type nests, else a word."""
        inner = typ.element
        assert inner is not None
        if self.peek() == "{":
            if inner.kind in ("array", "list", "map"):
                return self.value(inner)
            self.fail("malformed literal; must escape special character '{'")
        return self.word("")

    def word(self, stop: str) -> str | None:
        """A text in quotes or up to what ends it; None for a bare NULL."""
        if self.peek() == '"':
            return self.quoted()
        start = self.at
        out: list[str] = []
        while True:
            char = self.peek()
            if not char:
                self.fail("unterminated element")
            if char in ",}" or (stop and self.text.startswith(stop, self.at)):
                break
            if char in '{"':
                self.fail(f"malformed literal; must escape special character '{char}'")
            if char == "\\":
                self.at += 1
                char = self.peek()
                if not char:
                    self.fail("unterminated escape sequence")
            out.append(char)
            self.at += 1
        raw = self.text[start : self.at].strip(_SPACE)
        if not raw:
            self.fail("malformed literal; expected an element")
        if raw.upper() == "NULL":
            return None
        text = "".join(out)
        return text.rstrip(_SPACE) if not raw.endswith("\\ ") else text

    def quoted(self) -> str:
        """A text in quotes."""
        self.at += 1
        out: list[str] = []
        while not self.take('"'):
            char = self.peek()
            if char == "\\":
                self.at += 1
                char = self.peek()
            if not char:
                self.fail("unterminated quoted string")
            out.append(char)
            self.at += 1
        return "".join(out)
