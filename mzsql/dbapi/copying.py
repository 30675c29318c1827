"""COPY through a cursor, modelled on psycopg's `Copy`.

Promise: COPY … TO STDOUT is read as bytes, a batch of rows at a time. COPY … FROM STDIN takes bytes or rows, keeps them
in a temporary file, and loads all of them as one write when its block ends normally, nothing when it ends with an
exception.
"""

from __future__ import annotations

import datetime as dt
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import IO, Any, Protocol

from mzsql.adapter.statements.copy_to import CopyOut
from mzsql.dbapi import arguments
from mzsql.dbapi.errors import ProgrammingError, user_errors

Parameters = Sequence[object] | Mapping[str, object] | None


class Copies(Protocol):
    """The cursor that a COPY runs on."""

    def takes_data(self, operation: str) -> bool:
        """Whether a text is a COPY … FROM STDIN."""

    def run_copy(
        self, operation: str, parameters: Parameters, stdin: Path | None
    ) -> CopyOut | None:
        """Run a COPY; its output, if it has any."""


class Copy:
    """One COPY; a context manager, made by `Cursor.copy`."""

    def __init__(self, cursor: Copies, operation: str, parameters: Parameters) -> None:
        self._cursor = cursor
        self._operation = operation
        self._parameters = parameters
        self._out: CopyOut | None = None
        self._data: IO[bytes] | None = None
        self._bytes: Iterator[bytes] = iter(())

    def __enter__(self) -> Copy:
        if self._cursor.takes_data(self._operation):
            self._data = tempfile.NamedTemporaryFile(prefix="mzsql-copy-")
            return self
        self._out = self._cursor.run_copy(self._operation, self._parameters, None)
        if self._out is None:
            raise ProgrammingError(
                "copy() is for COPY … TO STDOUT and COPY … FROM STDIN", sqlstate="0A000"
            )
        self._bytes = iter(self._out)
        return self

    def __exit__(self, failure: type[BaseException] | None, *_: object) -> None:
        if self._out is not None:
            self._out.close()
        data, self._data = self._data, None
        if data is None:
            return
        with data:
            if failure is None:
                data.flush()
                self._cursor.run_copy(self._operation, self._parameters, Path(data.name))

    # --- out ------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[bytes]:
        while data := self.read():
            yield data

    def read(self) -> bytes:
        """The next bytes, which are whole rows; empty at the end. Waits for rows of a SUBSCRIBE.

        Raises:
            ProgrammingError: it is a COPY … FROM STDIN.
            Error: the query fails, or was canceled.
        """
        if self._out is None:
            raise ProgrammingError("this COPY takes data: write() it", sqlstate="0A000")
        with user_errors():
            return next(self._bytes, b"")

    # --- in -------------------------------------------------------------------------------------------

    def write(self, data: bytes | str) -> None:
        """Add data in the COPY's format; a str is encoded as UTF-8.

        Raises:
            ProgrammingError: it is a COPY … TO STDOUT, or ``data`` is neither bytes nor a str.
            DataError: ``data`` is a str with a lone surrogate.
        """
        if self._data is None:
            raise ProgrammingError("this COPY gives data: iterate it", sqlstate="0A000")
        if isinstance(data, str):
            data = arguments.text(data, "data").encode()
        elif not isinstance(data, bytes | bytearray | memoryview):
            arguments.refuse("data", "bytes or a str", data)
        with user_errors():
            self._data.write(data)

    def write_row(self, row: Sequence[Any]) -> None:
        """Add one row of Python values, in COPY's text format with its defaults; only for a COPY … FROM STDIN without
        options.

        Raises:
            ProgrammingError: as `write`; or ``row`` is not a sequence.
        """
        if not isinstance(row, Sequence) or isinstance(row, str | bytes | bytearray | memoryview):
            arguments.refuse("a row", "a sequence of values", row)
        self.write("\t".join(_field(value) for value in row) + "\n")


def _field(value: Any) -> str:
    if value is None:
        return "\\N"
    return _escaped(_text(value))


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "t" if value else "f"
    if isinstance(value, bytes | bytearray | memoryview):
        return f"\\x{bytes(value).hex()}"
    if isinstance(value, dt.timedelta):
        return str(value).replace(",", "")
    if isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False, default=_number)
    if isinstance(value, list | tuple):
        return _array(value)
    return str(value)


def _number(value: Any) -> Any:
    """The JSON value for a Decimal, which JSON does not know."""
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    raise TypeError(f"{type(value).__name__} cannot stand in a JSON document")


def _array(values: Sequence[Any]) -> str:
    parts = []
    for value in values:
        if value is None:
            parts.append("NULL")
        elif isinstance(value, list | tuple):
            parts.append(_array(value))
        else:
            parts.append('"' + _text(value).replace("\\", "\\\\").replace('"', '\\"') + '"')
    return "{" + ",".join(parts) + "}"


def _escaped(text: str) -> str:
    for old, new in (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r")):
        text = text.replace(old, new)
    return text
