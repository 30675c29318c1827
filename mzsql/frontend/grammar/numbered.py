"""Numbered parameters (``$1``) in a text, told from the other uses of ``$``: names that have it, and dollar-quoted strings.

Promise: only a parameter is respelled, and every position stays. What is a string, a name or a comment is read as PostgreSQL's scanner
reads it.
"""

from __future__ import annotations

import re

#: A quoted string may not begin, nor a parameter, inside of a name: ``a$1`` and ``a$$`` are names.
_QUOTED_OR_NUMBERED = re.compile(
    r"""(?<!\w)[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|(?P<comment>/\*)"""
    r"""|(?<![\w$])\$(?P<tag>(?:[^\W\d]\w*)?)\$.*?\$(?P=tag)\$|(?<![\w$])(?P<numbered>\$)\d""",
    re.DOTALL,
)
#: Whole strings, names and comments of a line; and the beginnings of those that do not end.
_BEGINS = re.compile(
    r"""(?<!\w)[eE]'(?:[^'\\]|\\.|'')*+'|(?<!(?<!\w)[eE])'(?:[^']|'')*+'|"(?:[^"]|"")*+"|--[^\n]*|(?P<comment>/\*)"""
    r"""|(?<![\w$])\$(?P<tag>(?:[^\W\d]\w*)?)\$.*?\$(?P=tag)\$"""
    r"""|(?P<open>'|"|(?<![\w$])\$(?:[^\W\d]\w*)?\$)""",
    re.DOTALL,
)
_COMMENT_ENDS = re.compile(r"/\*|\*/")


def _comment_end(text: str, start: int) -> int:
    """Where the comment that begins at ``start`` ends: comments nest, and one that is not closed takes the rest."""
    depth = 0
    for end in _COMMENT_ENDS.finditer(text, start):
        depth += 1 if end[0] == "/*" else -1
        if depth == 0:
            return end.end()
    return len(text)


def unended(text: str) -> tuple[str, int] | None:
    """What begins in a text and does not end, and where (from 0): a comment, a quoted string or name; None where there is none."""
    at = 0
    while (found := _BEGINS.search(text, at)) is not None:
        if found["comment"]:
            at, depth = found.end(), 1
            for end in _COMMENT_ENDS.finditer(text, at):
                depth += 1 if end[0] == "/*" else -1
                at = end.end()
                if depth == 0:
                    break
            if depth:
                return "multiline comment", found.start()
        elif found["open"]:
            kind = {"'": "quoted string", '"': "quoted identifier"}
            return kind.get(found["open"][-1], "dollar-quoted string"), found.start("open")
        else:
            at = found.end()
    return None


def without_tags(text: str) -> str:
    """The text with ``$1`` spelled ``@1``: sqlglot takes ``$1,$`` for the tag of a quoted string. Positions stay."""
    numbered = set()
    at = 0
    while (found := _QUOTED_OR_NUMBERED.search(text, at)) is not None:
        at = _comment_end(text, found.start()) if found["comment"] else found.end()
        if found["numbered"]:
            numbered.add(found.start())
    return "".join("@" if i in numbered else c for i, c in enumerate(text)) if numbered else text
