"""Output on the terminal: rows in psql's layout, values in PostgreSQL's text form, errors in the format of PostgreSQL's
tools.

Promise: rows are plain text without colours, independent of the terminal's width. Trade-off: a result is laid out as a
whole, so that its columns line up.
"""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import IO, Any, Protocol


class Cursor(Protocol):
    """The part of a PEP 249 cursor that printing needs."""

    @property
    def description(self) -> Any:
        """A sequence of column descriptions, or None for a statement without rows."""

    @property
    def rowcount(self) -> int:
        """The number of rows returned or affected; -1 if unknown."""

    def fetchall(self) -> Sequence[Sequence[Any]]:
        """The rows."""


def text_of(value: Any) -> str:
    """A value as PostgreSQL prints it; the empty string for NULL."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "t" if value else "f"
    if isinstance(value, float):
        return _float_text(value)
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, bytes | bytearray | memoryview):
        return "\\x" + bytes(value).hex()
    if isinstance(value, dt.datetime):
        text = value.isoformat(sep=" ")
        return text.removesuffix(":00") if value.utcoffset() is not None else text
    if isinstance(value, list):
        return "{" + ",".join("NULL" if v is None else _element_text(v) for v in value) + "}"
    if isinstance(value, tuple):
        return "(" + ",".join(map(_field_text, value)) + ")"
    return str(value)


def _float_text(value: float) -> str:
    if value != value:  # noqa: PLR0124  only NaN differs from itself
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    return repr(value).removesuffix(".0")


def _field_text(value: Any) -> str:
    """A field of a record; the empty string is quoted, because NULL is printed as nothing."""
    if value is None:
        return ""
    text = text_of(value)
    if text and not any(c in '(),"\\' or c.isspace() for c in text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '""') + '"'


def _element_text(value: Any) -> str:
    text = text_of(value)
    plain = text and not any(c in '{},"\\' or c.isspace() for c in text) and text.upper() != "NULL"
    if plain or isinstance(value, list):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def print_table(
    names: Sequence[str],
    rows: Sequence[Sequence[Any]],
    out: IO[str],
    *,
    footer: str | None = None,
) -> None:
    """Print rows in psql's layout; a single value of several lines, such as a plan, without one.

    Args:
        names: the columns' names.
        rows: the rows.
        out: where to print.
        footer: the last line; the number of rows by default.
    """
    cells = [[text_of(value) for value in row] for row in rows]
    if len(names) == 1 and len(cells) == 1 and "\n" in cells[0][0]:
        out.write(f"{names[0]}\n{'-' * len(names[0])}\n{cells[0][0].rstrip()}\n\n")
        return
    widths = [
        max([len(name), *(len(line) for row in cells for line in row[i].split("\n"))])
        for i, name in enumerate(names)
    ]
    numeric = [
        any(_is_number(row[i]) for row in rows)
        and all(row[i] is None or _is_number(row[i]) for row in rows)
        for i in range(len(names))
    ]
    centred = [
        (" " * ((w - len(name)) // 2) + name).ljust(w)
        for name, w in zip(names, widths, strict=True)
    ]
    out.write(_line(centred))
    out.write("+".join("-" * (w + 2) for w in widths) + "\n")
    for row in cells:
        for line in _lines(row):
            aligned = [
                text.rjust(w) if right else text.ljust(w)
                for text, w, right in zip(line, widths, numeric, strict=True)
            ]
            out.write(_line(aligned))
    count = f"({len(rows)} row{'' if len(rows) == 1 else 's'})" if footer is None else footer
    out.write(f"{count}\n\n")


def _line(cells: Sequence[str]) -> str:
    return (" " + " | ".join(cells)).rstrip() + "\n"


def _lines(row: Sequence[str]) -> Iterable[list[str]]:
    split = [cell.split("\n") for cell in row]
    for i in range(max((len(lines) for lines in split), default=1)):
        yield [lines[i] if i < len(lines) else "" for lines in split]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def print_csv(
    names: Sequence[str], rows: Iterable[Sequence[Any]], out: IO[str], *, header: bool = True
) -> None:
    """Print rows as CSV; NULL is an empty field, the empty string a quoted one.

    Args:
        names: the columns' names.
        rows: the rows.
        out: where to print.
        header: whether to print the names first.
    """
    # The csv module can distinguish NULL from the empty string only since Python 3.12.
    if header:
        out.write(_csv_line(names))
    for row in rows:
        out.write(_csv_line(row))


def _csv_line(row: Sequence[Any]) -> str:
    return ",".join("" if value is None else _csv_field(text_of(value)) for value in row) + "\n"


def _csv_field(text: str) -> str:
    if text and not any(c in ',"\r\n' for c in text) and text.strip() == text:
        return text
    return '"' + text.replace('"', '""') + '"'


def error_lines(error: BaseException, statement: str | None = None) -> str:
    """An error in the format of PostgreSQL's tools: ``ERROR:  …``, the line with a caret at the position, detail, hint."""
    message = getattr(error, "message", None) or str(error) or type(error).__name__
    # PEP 249's exceptions repeat detail and hint in their text.
    message = message.partition("\nDETAIL: ")[0].partition("\nHINT: ")[0]
    lines = [f"ERROR:  {message}"]
    position = getattr(error, "position", None)
    if statement is not None and isinstance(position, int) and 1 <= position <= len(statement) + 1:
        lines += _caret(statement, position)
    for label in ("detail", "hint"):
        told = getattr(error, label, None)
        if told:
            lines.append(f"{label.upper()}:  {told}")
    return "\n".join(lines) + "\n"


def _caret(statement: str, position: int) -> list[str]:
    before = statement[: position - 1]
    number = before.count("\n") + 1
    line = statement.split("\n")[number - 1]
    head = f"LINE {number}: "
    column = len(before) - (before.rfind("\n") + 1)
    return [head + line, " " * (len(head) + column) + "^"]


def print_result(cursor: Cursor, style: str, out: IO[str] | None = None) -> None:
    """Print a statement's rows in the style ``table`` or ``csv``, or its completion message."""
    out = sys.stdout if out is None else out
    if cursor.description is None:
        status = getattr(cursor, "statusmessage", None)
        if status and style == "table":
            out.write(f"{status}\n")
        return
    names = [column[0] for column in cursor.description]
    if style == "csv":
        print_csv(names, cursor.fetchall(), out)
    else:
        print_table(names, cursor.fetchall(), out)
