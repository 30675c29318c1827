r"""Scripts: texts of statements and a few lines that are not SQL.

Promise: `split` cuts at the semicolons that the dialect's tokenizer finds, so quotes, comments and dollar quotes are
respected. Lines that psql users know are understood: ``\ir FILE`` runs a file relative to this one, ``\i FILE`` one
relative to the current directory, ``\echo TEXT`` prints. A comment line ``-- step: TITLE`` begins a step, for tools
that show a script step by step.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path, PurePosixPath

from mzsql.frontend.grammar.tokens import tokenize
from mzsql.repr.errors import DataError, InvalidParameter, SqlSyntaxError

#: The package with mzsql's own scripts.
PACKAGE = "mzsql.scripts"

#: The maximum depth of includes.
_DEEPEST = 64

_LINE = re.compile(
    r"^[ \t]*(?:\\(?P<command>\S+)[ \t]*(?P<argument>.*?)|--[ \t]*step:[ \t]*(?P<step>.*?))[ \t]*;?$",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Piece:
    """A statement (``kind`` is ``statement``), or a line (``ir``, ``i``, ``echo``, ``step``) with its argument as
    ``text``.
    """

    kind: str
    text: str
    line: int


@dataclass(frozen=True)
class Step:
    """A titled part of a script with its statements."""

    title: str
    statements: tuple[str, ...]


def split(text: str) -> list[Piece]:
    """The pieces of a script in order.

    Raises:
        SqlSyntaxError: a quote or comment does not end.
    """
    pieces: list[tuple[int, str, str]] = []

    def blank(match: re.Match[str]) -> str:
        kind = "step" if match["step"] is not None else match["command"]
        pieces.append((match.start(), kind, match["step"] or match["argument"] or ""))
        return " " * len(match[0])

    sql = _LINE.sub(blank, text)
    start: int | None = None
    end = 0
    for token in tokenize(sql):
        if token.token_type.name == "SEMICOLON":
            if start is not None:
                pieces.append((start, "statement", sql[start:end]))
            start = None
            continue
        start = token.start if start is None else start
        end = token.end + 1
    if start is not None:
        pieces.append((start, "statement", sql[start:end]))
    pieces.sort(key=lambda piece: piece[0])
    return [Piece(kind, body, text.count("\n", 0, at) + 1) for at, kind, body in pieces]


def is_complete(text: str) -> bool:
    """Whether the input is complete: its last token is a semicolon, or it is a line that is not SQL."""
    if text.lstrip().startswith("\\"):
        return True
    try:
        tokens = tokenize(text)
    except SqlSyntaxError:
        return False  # a quote or comment is open
    return bool(tokens) and tokens[-1].token_type.name == "SEMICOLON"


def decoded(data: bytes, origin: str) -> str:
    """The bytes of a script as text.

    Args:
        data: the bytes.
        origin: the script's name in the error.

    Raises:
        DataError: they are not UTF-8; the error gives the line.
    """
    try:
        return data.decode()
    except UnicodeDecodeError as failure:
        line = data.count(b"\n", 0, failure.start) + 1
        raise DataError(
            f'{origin}, line {line}: invalid byte sequence for encoding "UTF8": 0x{data[failure.start]:02x}',
            sqlstate="22021",
        ) from None


def script_text(path: Traversable | Path, origin: str | None = None) -> str:
    """The text of a script file.

    Args:
        path: the file.
        origin: its name in errors.

    Raises:
        OSError: it cannot be read.
        DataError: it is not UTF-8.
    """
    return decoded(path.read_bytes(), origin or path.name)


def expand(
    text: str,
    beside: Traversable | Path,
    *,
    origin: str = "script",
    depth: int = 0,
) -> Iterator[Piece]:
    r"""The pieces of a script, with included files expanded.

    Args:
        text: the script.
        beside: the folder that ``\ir`` is relative to.
        origin: the script's name in errors.
        depth: the number of files that include it, one within the other.

    Raises:
        InvalidParameter: an included file does not exist or includes itself, or a backslash command is unknown.
        DataError: an included file is not UTF-8.
    """
    for piece in split(text):
        if piece.kind in ("ir", "i"):
            path = piece.text.strip("'\"")
            target = beside.joinpath(path) if piece.kind == "ir" else Path(path)
            if depth >= _DEEPEST:
                raise InvalidParameter(
                    f"{origin}, line {piece.line}: scripts include each other more than {_DEEPEST} deep",
                    hint="A script that includes itself never ends.",
                )
            try:
                included = script_text(target, path)
            except (
                OSError,
                ValueError,
            ) as error:  # the latter of a path with a character that no path has
                reason = error.strerror if isinstance(error, OSError) else error
                raise InvalidParameter(
                    f"{origin}, line {piece.line}: cannot read {path!r}: {reason}"
                ) from error
            folder = beside if piece.kind == "ir" else Path()
            for part in PurePosixPath(path).parent.parts:
                folder = folder.joinpath(part)
            yield from expand(included, folder, origin=path, depth=depth + 1)
        elif piece.kind in ("statement", "step", "echo"):
            yield piece
        else:
            raise InvalidParameter(
                f"{origin}, line {piece.line}: unknown command \\{piece.kind}",
                hint="A script knows \\i, \\ir and \\echo.",
            )


def shipped(name: str) -> str:
    """The text of one of mzsql's scripts, by path: ``quickstart.sql``, ``tpch/q03.sql``."""
    return resources.files(PACKAGE).joinpath(name).read_text(encoding="utf-8")


def shipped_steps(name: str) -> list[Step]:
    """The steps of one of mzsql's scripts; statements before the first title have an empty one."""
    steps: list[Step] = []
    title, statements = "", list[str]()
    for piece in expand(shipped(name), resources.files(PACKAGE), origin=name):
        if piece.kind == "step":
            if statements:
                steps.append(Step(title, tuple(statements)))
            title, statements = piece.text, []
        elif piece.kind == "statement":
            statements.append(piece.text)
    if statements:
        steps.append(Step(title, tuple(statements)))
    return steps
