r"""The syntax of regular expressions, and its translation for each engine.

Promise: patterns are in RE2's syntax (Materialize's, except for a few extensions of its crate); ``\w``, ``\d`` and
``\s`` cover all of Unicode and a dot matches line feeds, as in Materialize and PostgreSQL. What Java interprets
differently (POSIX classes, brackets in classes, group names, line ends, case beyond ASCII) is rewritten for Spark; what
it cannot express is refused there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from mzsql.expr.functions.table import Engine
from mzsql.repr.errors import Unsupported

#: PostgreSQL's flags; ``g`` (every match) concerns the function.
FLAGS = frozenset("cgimnpsw")

_TOKEN = re.compile(
    r"(?P<quoted>\\Q.*?(?:\\E|\Z))"
    r"|(?P<escape>\\[pP](?:\{[^}]*\}|.)|\\x(?:\{[^}]*\}|[0-9A-Fa-f]{2})|\\.)"
    r"|(?P<set>\[\^?\]?(?:\[:\^?\w+:\]|\\[pP]\{[^}]*\}|\\.|[^\]\\])*\])"
    r"|(?P<flags>\(\?[a-zA-Z-]+\))"
    r"|(?P<open>\(\?P?<\w+>|\(\?[a-zA-Z-]*:|\()"
    r"|(?P<close>\))"
    r"|(?P<or>\|)"
    r"|(?P<repeat>(?:[*+?]|\{\d+(?:,\d*)?\})\??)"
    r"|(?P<other>.)",
    re.DOTALL,
)
_SET_PART = re.compile(r"\[:\^?\w+:\]|\\[pP](?:\{[^}]*\}|.)|\\x\{[^}]*\}|\\.|.", re.DOTALL)

#: Unicode classes: the contents of a set for each letter.
_CLASSES = {
    "d": r"\p{Nd}",
    "s": r"\t-\r\x{85}\p{Z}",
    "w": r"\p{L}\p{M}\p{N}\p{Pc}",
}
_POSIX = {
    name.lower(): name
    for name in (
        "Alnum", "Alpha", "ASCII", "Blank", "Cntrl", "Digit", "Graph", "Lower", "Print", "Punct",
        "Space", "Upper", "XDigit",
    )
}  # fmt: skip
_WORD = "[0-9A-Za-z_]"


@dataclass(frozen=True)
class Group:
    """A capturing group: its name, if any, and whether the pattern can match without it."""

    name: str | None
    optional: bool


@lru_cache(maxsize=1024)
def problem(pattern: str) -> str | None:
    """RE2's error for an invalid pattern; None for a valid one."""
    try:
        pc.match_substring_regex(pa.array([""]), pattern)
    except pa.ArrowInvalid as failure:
        return str(failure).partition(": ")[2] or str(failure)
    return None


@lru_cache(maxsize=1024)
def matches_nothing(pattern: str) -> bool:
    """Whether a valid pattern matches the empty text."""
    found = pc.match_substring_regex(pa.array([""]), pattern)
    return bool(found[0].as_py())


def matches_nothing_somewhere(pattern: str) -> bool:
    """Whether a valid pattern matches the empty text at some place of some text, as ``x*`` and ``$`` do."""
    bare = ("(?:)" if _asks(kind, text) else text for kind, text in _tokens(pattern))
    return matches_nothing("".join(bare))


def asks_for_places(pattern: str) -> bool:
    r"""Whether a valid pattern has assertions about the text around it: ``^``, ``$``, ``\b``."""
    return any(_asks(kind, text) for kind, text in _tokens(pattern))


def _asks(kind: str, text: str) -> bool:
    if kind == "escape":
        return text in ("\\b", "\\B", "\\A", "\\z")
    return kind == "other" and text in "^$"


def _tokens(pattern: str) -> Iterator[tuple[str, str]]:
    for match in _TOKEN.finditer(pattern):
        assert match.lastgroup is not None
        yield match.lastgroup, match[0]


@dataclass
class _Level:
    """The contents of a group, or the whole pattern."""

    name: str | None = None
    captures: bool = False
    branches: bool = False
    skippable: bool = False
    children: list[_Level] = field(default_factory=list)


def groups(pattern: str) -> tuple[Group, ...]:
    """The capturing groups of a valid pattern, in order."""
    root = _Level()
    path, last = [root], None
    for kind, text in _tokens(pattern):
        if kind == "repeat" and last is not None:
            last.skippable = text[0] in "*?" or text.startswith("{0")
        last = None
        if kind == "open":
            name = re.match(r"\(\?P?<(\w+)>", text)
            made = _Level(None if name is None else name[1], text == "(" or name is not None)
            path[-1].children.append(made)
            path.append(made)
        elif kind == "close" and len(path) > 1:
            last = path.pop()
        elif kind == "or":
            path[-1].branches = True
    return tuple(_captured(root, optional=False))


def _captured(level: _Level, *, optional: bool) -> Iterator[Group]:
    for child in level.children:
        loose = optional or level.branches or child.skippable
        if child.captures:
            yield Group(child.name, loose)
        yield from _captured(child, optional=loose)


def inline(flags: str) -> str:
    """PostgreSQL's flags as a pattern's prefix; of contradicting flags the last one counts."""
    insensitive, dot, lines = False, True, False
    for flag in flags:
        if flag in "ic":
            insensitive = flag == "i"
        elif flag in "nmspw":
            dot, lines = flag in "sw", flag in "nmw"
    letters = "".join(letter for letter, on in (("i", insensitive), ("s", dot), ("m", lines)) if on)
    return f"(?{letters})" if letters else ""


def spelled(pattern: str, flags: str, engine: Engine) -> str:
    """A valid pattern in an engine's syntax.

    Args:
        pattern: the pattern.
        flags: its flags.
        engine: the engine.

    Raises:
        Unsupported: Java cannot express it.
    """
    whole = inline(flags) + pattern
    lines = "m" in "".join(text for kind, text in _tokens(whole) if kind == "flags")
    return "".join(_token(kind, text, engine, lines) for kind, text in _tokens(whole))


def _token(kind: str, text: str, engine: Engine, lines: bool) -> str:
    spark = engine is Engine.SPARK
    if kind == "escape":
        return _escape(text, engine)
    if kind == "set":
        return _set(text, engine)
    if not spark:
        # DuckDB's RE2 is older than Arrow's, which finds what is wrong with a pattern, and knows no (?<name>.
        return f"(?P{text[2:]}" if kind == "open" and text.startswith("(?<") else text
    if kind in ("flags", "open") and text.startswith("(?"):
        return _flags(text)
    if kind == "other" and text in "^$":
        if lines:  # Java's ^ stands before no end of the text, not even that of an empty one
            return r"(?<![^\n])" if text == "^" else r"(?![^\n])"
        return "^" if text == "^" else r"\z"  # Java's $ also stands before a last line feed
    if kind == "other" and text == "{":
        return r"\{"
    return text


def _flags(text: str) -> str:
    if "<" in text:
        return "("  # names of groups matter to nobody here, and Java's have no underscore
    letters = text[2:-1]
    if "U" in letters:
        raise Unsupported("the flag U of a regular expression is not supported in a dataflow")
    on, minus, off = letters.partition("-")
    # Case-insensitivity for all letters, and only line feeds as line ends.
    on += "u" if "i" in on else ""
    on += "d" if "m" in on or "s" in on else ""
    return f"(?{on}{minus}{off}{text[-1]}"


def _escape(text: str, engine: Engine) -> str:
    letter = text[1:]
    if letter in _CLASSES:
        return f"[{_CLASSES[letter]}]"
    if letter.lower() in _CLASSES:
        return f"[^{_CLASSES[letter.lower()]}]"
    if engine is Engine.DUCKDB:
        return text
    if letter == "v":
        return r"\x0B"
    if letter == "b":
        return f"(?:(?<={_WORD})(?!{_WORD})|(?<!{_WORD})(?={_WORD}))"
    if letter == "B":
        return f"(?:(?<={_WORD})(?={_WORD})|(?<!{_WORD})(?!{_WORD}))"
    return text


def _set(text: str, engine: Engine) -> str:
    body, out = text[1:-1], "["
    if body.startswith("^"):
        body, out = body[1:], "[^"
    for part in _SET_PART.findall(body):
        out += _set_part(part, engine)
    return out + "]"


def _set_part(part: str, engine: Engine) -> str:
    if part[:1] == "\\" and part[1:] in _CLASSES:
        return _CLASSES[part[1:]]
    if engine is Engine.DUCKDB:
        return part
    if part.startswith("[:"):
        name = part[2:-2]
        negated, name = name.startswith("^"), name.removeprefix("^")
        if name == "word":
            return r"\W" if negated else r"\w"
        return f"\\{'P' if negated else 'p'}{{{_POSIX[name]}}}"
    if part in ("[", "]", "&"):
        return f"\\{part}"
    return r"\x0B" if part == r"\v" else part
