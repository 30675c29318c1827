"""Telling numbered parameters (``$1``) apart from other uses of ``$``: in names, and in dollar-quoted strings.

Promise: only parameters are respelled, and all positions stay the same. Strings, names and comments are recognized as
PostgreSQL's scanner does.
"""

from __future__ import annotations

import re

#: Neither a dollar-quoted string nor a parameter begins inside a name: ``a$1`` and ``a$$`` are names.
_QUOTED_OR_NUMBERED = re.compile(
    r"""(?<!\w)[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|(?P<comment>/\*)"""
    r"""|(?<![\w$])\$(?P<tag>(?:[^\W\d]\w*)?)\$.*?\$(?P=tag)\$|(?<![\w$])(?P<numbered>\$)\d""",
    re.DOTALL,
)
#: Complete strings, names and comments, and the beginnings of unterminated ones.
_BEGINS = re.compile(
    r"""(?<!\w)[eE]'(?:[^'\\]|\\.|'')*+'|(?<!(?<!\w)[eE])'(?:[^']|'')*+'|"(?:[^"]|"")*+"|--[^\n]*|(?P<comment>/\*)"""
    r"""|(?<![\w$])\$(?P<tag>(?:[^\W\d]\w*)?)\$.*?\$(?P=tag)\$"""
    r"""|(?P<open>'|"|(?<![\w$])\$(?:[^\W\d]\w*)?\$)""",
    re.DOTALL,
)
_COMMENT_ENDS = re.compile(r"/\*|\*/")


def _comment_end(text: str, start: int) -> int:
    """The end of the comment that begins at ``start``; comments nest, and an unterminated one extends to the end."""
    depth = 0
    for end in _COMMENT_ENDS.finditer(text, start):
        depth += 1 if end[0] == "/*" else -1
        if depth == 0:
            return end.end()
    return len(text)


def unended(text: str) -> tuple[str, int] | None:
    """What begins in a text and is not terminated (comment, quoted string or name), and its 0-based position; None
    where all is.
    """
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
    """The text with ``$1`` written as ``@1``, since sqlglot reads ``$1,$`` as the tag of a quoted string. Positions
    stay the same.
    """
    numbered = set()
    at = 0
    while (found := _QUOTED_OR_NUMBERED.search(text, at)) is not None:
        at = _comment_end(text, found.start()) if found["comment"] else found.end()
        if found["numbered"]:
            numbered.add(found.start())
    return "".join("@" if i in numbered else c for i, c in enumerate(text)) if numbered else text
