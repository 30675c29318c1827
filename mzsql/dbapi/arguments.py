"""Checking the arguments of the public calls, before anything is done.

Promise: a wrong argument is refused with a PEP 249 error that says what was expected and what was given, and leaves
connection and cursor unchanged. The error shows the value's type, or its text where that is short and of a builtin
type: no code of the caller's object runs.
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from mzsql.adapter.session.copy_paths import ANYWHERE, CopyPaths
from mzsql.dbapi.errors import DataError, ProgrammingError
from mzsql.repr.shown import shown

#: invalid_parameter_value.
_SQLSTATE = "22023"


def refuse(name: str, wanted: str, value: object, *, hint: str | None = None) -> NoReturn:
    """Refuse an argument.

    Raises:
        ProgrammingError: always.
    """
    raise ProgrammingError(
        f"{name} must be {wanted}, not {shown(value)}", hint=hint, sqlstate=_SQLSTATE
    )


def text(value: object, name: str) -> str:
    """A plain ``str`` that can be encoded as UTF-8.

    Raises:
        ProgrammingError: the value is no ``str``.
        DataError: it has a lone surrogate, which UTF-8 cannot encode (22021).
    """
    if not isinstance(value, str):
        refuse(name, "a str", value)
    plain = str.__str__(value)
    try:
        plain.encode()
    except UnicodeEncodeError as failure:
        # Raised outside the except block: the original error would carry the whole text along.
        at = failure.start
    else:
        return plain
    raise DataError(
        f"{name} must be Unicode text: it has a lone surrogate, {plain[at]!a}, at character {at + 1}",
        sqlstate="22021",
    )


def statement(value: object) -> str:
    """The text of one or several statements. The parser checks its characters."""
    if isinstance(value, str):
        return str.__str__(value)
    hint = "Decode it: statement.decode()." if isinstance(value, bytes | bytearray) else None
    refuse("a statement", "a str", value, hint=hint)


def parameters(value: object) -> Sequence[object] | Mapping[str, object] | None:
    """The parameters of one execution.

    Raises:
        ProgrammingError: the value is neither a sequence nor a mapping; a ``str`` or bytes count as neither.
    """
    if value is None or isinstance(value, Mapping):
        return value
    if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray | memoryview):
        return value
    raise ProgrammingError(
        f"query parameters should be a sequence or a mapping, not {shown(value)}",
        hint="Write one parameter as a list: [value].",
        sqlstate=_SQLSTATE,
    )


def sets_of_parameters(value: object) -> list[Sequence[object] | Mapping[str, object] | None]:
    """The parameters of several executions."""
    if not isinstance(value, Iterable) or isinstance(value, str | bytes | bytearray | Mapping):
        refuse("seq_of_parameters", "an iterable of sequences or mappings", value)
    return [parameters(one) for one in value]


def whole(value: object, name: str, least: int, greatest: int | None = None) -> int:
    """An integer from ``least`` to ``greatest``."""
    upto = "" if greatest is None else f" and at most {greatest}"
    wanted = f"a whole number of at least {least}{upto}"
    if isinstance(value, bool) or not isinstance(value, int):
        refuse(name, wanted, value)
    if value < least or (greatest is not None and value > greatest):
        refuse(name, wanted, value)
    return value


def seconds(value: object, name: str) -> float | None:
    """A duration in seconds; None for no limit."""
    if value is None:
        return None
    wanted = "a number of seconds from 0 on, or None"
    if isinstance(value, bool) or not isinstance(value, int | float):
        refuse(name, wanted, value)
    if not 0 <= value <= dt.timedelta.max.total_seconds():
        refuse(name, wanted, value)
    return float(value)


def flag(value: object, name: str) -> bool:
    """A bool."""
    if not isinstance(value, bool):
        refuse(name, "True or False", value)
    return value


def directory(value: object) -> str | None:
    """An environment's directory as a str; None where none is given.

    Raises:
        ProgrammingError: the value is no path, or a path of bytes.
    """
    if value is None:
        return None
    if not isinstance(value, str | os.PathLike):
        refuse("path", "a str or a path", value)
    try:
        path: object = os.fspath(value)
    except Exception as failure:  # `__fspath__` is the caller's code, and may fail in any way
        raise ProgrammingError(
            f"path must be a str or a path, not {shown(value)}, which gives none",
            sqlstate=_SQLSTATE,
        ) from failure
    if not isinstance(path, str):
        refuse("path", "a str or a path of text", path)
    return _place(path, "path")


def place(value: object, name: str) -> str | None:
    """A URL or a name; None where none is given."""
    return None if value is None else _place(value, name)


def _place(value: object, name: str) -> str:
    found = text(value, name)
    if not found or "\0" in found:
        refuse(name, "a text that is not empty, without the character U+0000", found)
    return found


def copy_paths(value: object) -> CopyPaths:
    """The folders that COPY is restricted to; None: no restriction."""
    if value is None:
        return ANYWHERE
    if isinstance(value, str | bytes | bytearray | os.PathLike) or not isinstance(value, Iterable):
        hint = "One folder is [folder], none is []."
        refuse("copy_paths", "an iterable of folders, or None", value, hint=hint)
    folders = []
    for one in value:
        found = text(
            os.fspath(one) if isinstance(one, os.PathLike) else one, "a folder of copy_paths"
        )
        if "\0" in found or not found:
            refuse("a folder of copy_paths", "a path", found)
        folders.append(Path(found).expanduser().resolve())
    return CopyPaths(tuple(folders))
