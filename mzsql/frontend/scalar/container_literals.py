"""Parsing the text of arrays, lists and maps.

Promise: what PostgreSQL and Materialize print for a value parses back to that value. Elements stay texts here, to be
read by their type. A malformed text fails with what was expected; the error in a nested value quotes that value's own
text. An array has as many dimensions as braces open it, and all subarrays of one dimension have the same length.
"""

from __future__ import annotations

from typing import Any, NoReturn

from mzsql.repr.errors import DataError
from mzsql.repr.types import SqlType

_SPACE = " \t\n\r\v\f"
_UNEVEN = "Multidimensional arrays must have sub-arrays with matching dimensions."


class _Malformed(Exception):
    """The message about a malformed text."""


def parse(text: str, typ: SqlType) -> Any:
    """Parse a text: lists of texts, dicts of texts, None for NULL, nested as the type is.

    Raises:
        DataError: ``invalid input syntax for type list: …: "…"`` (22P02).
    """
    try:
        return _parsed(text, typ)
    except _Malformed as problem:
        raise DataError(str(problem), sqlstate="22P02") from None


def _parsed(text: str, typ: SqlType) -> Any:
    readers = {"array": _array, "list": _list, "map": _map}
    try:
        return readers[typ.kind](_Reader(text), typ)
    except _Malformed as problem:
        raise _Malformed(f'invalid input syntax for type {typ.kind}: {problem}: "{text}"') from None


class _Reader:
    """A text with a reading position."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def peek(self) -> str:
        """The next character; empty at the end."""
        return self.text[self.at : self.at + 1]

    def next(self) -> str:
        """The next character, consumed; empty at the end."""
        char = self.peek()
        self.at += len(char)
        return char

    def skip_space(self) -> None:
        """Skip white space."""
        while self.peek() and self.peek() in _SPACE:
            self.at += 1

    def open(self) -> None:
        """Consume the brace that begins a list or map."""
        found = self.next()
        if found != "{":
            raise _Malformed(f"expected '{{', found {found or 'empty string'}")

    def end(self) -> None:
        """Check that only white space follows."""
        self.skip_space()
        if self.peek():
            raise _Malformed(
                f"malformed array literal; contains '{self.peek()}' after terminal '}}'"
            )

    def quoted(self) -> str:
        """A quoted text, unescaped."""
        self.at += 1
        out: list[str] = []
        while (char := self.next()) != '"':
            char = self.next() if char == "\\" else char
            if not char:
                raise _Malformed("unterminated quoted string")
            out.append(char)
        return "".join(out)

    def embedded(self) -> str:
        """A value in braces, as written."""
        start, depth, quoted = self.at, 0, False
        while True:
            char = self.next()
            if char == "\\":
                self.at += 1
            elif char == '"':
                quoted = not quoted
            elif char == "{" and not quoted:
                depth += 1
            elif char == "}" and not quoted:
                depth -= 1
            elif not char:
                raise _Malformed("unterminated embedded element")
            if depth == 0:
                return self.text[start : self.at]

    def word(self, special: str, ends: str) -> str | None:
        """An unquoted text up to a character that ends it; None for an unquoted NULL."""
        out: list[str] = []
        length, escaped = 0, False
        while (char := self.peek()) not in ends or not char:
            self.at += 1
            if not char:
                raise _Malformed("unterminated element")
            if char == "\\":
                char, escaped = self.next(), True
                if not char:
                    raise _Malformed("unterminated element")
                out.append(char)
                length = len(out)
                continue
            if char in special:
                raise _Malformed(f"malformed literal; must escape special character '{char}'")
            out.append(char)
            length = length if char in _SPACE else len(out)
        if not out:
            raise _Malformed("malformed literal; missing element")
        text = "".join(out[:length])
        return None if text.upper() == "NULL" and not escaped else text


# --- lists and maps ------------------------------------------------------------------------------


def _inner(typ: SqlType) -> SqlType:
    assert typ.element is not None
    return typ.element


def _list(reader: _Reader, typ: SqlType) -> list[Any]:
    items: list[Any] = []
    reader.open()
    while _goes_on(reader, bool(items), "expected ',' or '}', got '{}'"):
        items.append(_element(reader, typ))
    reader.end()
    return items


def _goes_on(reader: _Reader, begun: bool, otherwise: str) -> bool:
    """Whether another element follows; consumes the comma."""
    reader.skip_space()
    char = reader.peek()
    if char == "}":
        reader.at += 1
        return False
    if not begun:
        return True
    if not char:
        raise _Malformed("unexpected end of input")
    if char != ",":
        raise _Malformed(otherwise.replace("'{}'", f"'{char}'"))
    reader.at += 1
    return True


_LIST_SPECIAL, _LIST_ENDS = '{},\\"', ",}"
_WANTS_LIST = (
    "unescaped '{' at beginning of element; perhaps you want a nested list, "
    "e.g. '{a}'::text list list"
)


def _element(reader: _Reader, typ: SqlType) -> Any:
    """An element of a list."""
    return _inside(reader, _inner(typ), _LIST_SPECIAL, _LIST_ENDS, _WANTS_LIST)


def _inside(reader: _Reader, inner: SqlType, special: str, ends: str, unnested: str) -> Any:
    """An element of a list or map: quoted, in braces or a word; ``unnested`` is the message for braces where the type
    has none.
    """
    reader.skip_space()
    nested = inner.kind in ("list", "map")
    match reader.peek():
        case "":
            raise _Malformed("unexpected end of input")
        case '"':
            text: str | None = reader.quoted()
        case "{":
            if not nested:
                raise _Malformed(unnested)
            text = reader.embedded()
        case _:
            text = reader.word(special, ends)
    return _parsed(text, inner) if nested and text is not None else text


def _map(reader: _Reader, typ: SqlType) -> dict[str, Any]:
    entries: dict[str, Any] = {}
    reader.open()
    while _goes_on(reader, bool(entries), "expected ',' or end of input, got '{}'"):
        key = _key(reader)
        reader.skip_space()
        if reader.next() != "=" or reader.next() != ">":
            raise _Malformed("expected =>")
        entries[key] = _entry(reader, typ)
    reader.end()
    return dict(sorted(entries.items()))


_MAP_SPECIAL, _MAP_ENDS = '{},"=>\\', ",}="


def _key(reader: _Reader) -> str:
    reader.skip_space()
    if not reader.peek():
        raise _Malformed("unexpected end of input")
    key = reader.quoted() if reader.peek() == '"' else reader.word(_MAP_SPECIAL, _MAP_ENDS)
    if key is None:
        raise _Malformed("expected key")
    return key


_WANTS_MAP = (
    "unescaped '{' at beginning of value; perhaps you want a nested map, "
    "e.g. '{a=>{a=>1}}'::map[text=>map[text=>int]]"
)


def _entry(reader: _Reader, typ: SqlType) -> Any:
    """A value of a map."""
    return _inside(reader, _inner(typ), _MAP_SPECIAL, _MAP_ENDS, _WANTS_MAP)


# --- arrays --------------------------------------------------------------------------------------


def dimensions(text: str) -> int:
    """How many dimensions an array's text has: the number of its opening braces."""
    count = 0
    for char in text:
        if char == "{":
            count += 1
        elif char not in _SPACE:
            break
    return max(count, 1)


def _array(reader: _Reader, _typ: SqlType) -> list[Any]:
    if reader.peek() == "[":
        raise _Malformed("Specifying array lower bounds is not supported")
    reader.skip_space()
    if reader.next() != "{":
        raise _Malformed('Array value must start with "{"')
    depth = dimensions(reader.text)
    lengths: list[int | None] = [None] * depth
    items = _dimension(reader, 0, lengths)
    reader.skip_space()
    if reader.peek():
        raise _Malformed("Junk after closing right brace.")
    return [] if 0 in lengths else items


def _dimension(reader: _Reader, level: int, lengths: list[int | None]) -> list[Any]:
    """The elements of an array whose opening brace was consumed."""
    items: list[Any] = []
    pending = False  # an element that neither a comma nor the brace has closed yet
    while True:
        reader.skip_space()
        match reader.peek():
            case "":
                raise _Malformed("Unexpected end of input.")
            case "}":
                _close(items, pending, level, lengths)
                reader.at += 1
                return items
            case ",":
                if not pending:
                    _unexpected(",")
                reader.at += 1
                pending = False
            case char:
                items.append(_member(reader, char, pending, level, lengths))
                pending = True


def _member(
    reader: _Reader, char: str, pending: bool, level: int, lengths: list[int | None]
) -> Any:
    innermost = level == len(lengths) - 1
    if char == "{":
        if pending:
            _unexpected(char)
        if innermost:
            raise _Malformed(_UNEVEN)
        reader.at += 1
        return _dimension(reader, level + 1, lengths)
    text = reader.quoted() if char == '"' else reader.word('{},\\"', ",}")
    if pending or not innermost:
        raise _Malformed("Unexpected array element.")
    return text


def _close(items: list[Any], pending: bool, level: int, lengths: list[int | None]) -> None:
    if items and not pending:
        _unexpected("}")
    known = lengths[level]
    if known is not None and known != len(items):
        raise _Malformed(_UNEVEN)
    lengths[level] = len(items)


def _unexpected(char: str) -> NoReturn:
    raise _Malformed(f'Unexpected "{char}" character.')
