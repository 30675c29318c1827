"""Runs one statement on the terminal and prints its rows, or streams them where they never end.

Promise: rows of a SUBSCRIBE are printed as they arrive and flushed per batch, so that a pipe sees them; Ctrl-C ends it
normally, with the number of rows. COPY … TO STDOUT writes its bytes and nothing else; COPY … FROM STDIN loads stdin and
prints the number of rows, as psql does.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import IO, Any

import mzsql
from mzsql.cli.output import print_csv, print_result, text_of

_CHUNK = 64 * 1024


def run_statement(cursor: mzsql.Cursor, statement: str, style: str) -> None:
    """Run a statement and print its result in the style ``table`` or ``csv``."""
    if cursor.is_copy(statement):
        _copy(cursor, statement, style)
        return
    cursor.execute(statement)
    if cursor.streams:
        print_stream(cursor, style, sys.stdout)
    else:
        print_result(cursor, style)


def _copy(cursor: mzsql.Cursor, statement: str, style: str) -> None:
    if cursor.takes_data(statement):
        with cursor.copy(statement) as copy:
            while data := sys.stdin.buffer.read(_CHUNK):
                copy.write(data)
        print_result(cursor, style)
        return
    with cursor.copy(statement) as copy:
        sys.stdout.flush()
        try:
            for data in copy:
                sys.stdout.buffer.write(data)
                sys.stdout.buffer.flush()
        except KeyboardInterrupt:
            return  # the end of a COPY (SUBSCRIBE …)


def print_stream(cursor: mzsql.Cursor, style: str, out: IO[str]) -> None:
    """Print the rows of a SUBSCRIBE until it ends or Ctrl-C is pressed."""
    assert cursor.description is not None
    names = [column[0] for column in cursor.description]
    count = 0
    widths = [len(name) for name in names]
    if style == "csv":
        print_csv(names, [], out)
        out.flush()
    try:
        while rows := cursor.fetchmany(1000):
            first, count = count == 0, count + len(rows)  # before Ctrl-C can come between
            if style == "csv":
                print_csv([], rows, out, header=False)
            else:
                _print_rows(names, rows, widths, out, first=first)
            out.flush()
    except KeyboardInterrupt:
        pass
    finally:
        cursor.close_result()
    if style == "table":
        if count == 0:
            _print_rows(names, [], widths, out, first=True)
        out.write(f"({count} row{'' if count == 1 else 's'})\n\n")
    out.flush()


def _print_rows(
    names: Sequence[str],
    rows: Sequence[Sequence[Any]],
    widths: list[int],
    out: IO[str],
    *,
    first: bool,
) -> None:
    """Print rows in columns as wide as their widest value so far, with the names above the first."""
    cells = [[text_of(value).replace("\n", "\\n") for value in row] for row in rows]
    for i in range(len(names)):
        widths[i] = max([widths[i], *(len(row[i]) for row in cells)])
    if first:
        out.write(_line(names, widths))
        out.write("+".join("-" * (w + 2) for w in widths) + "\n")
    for row in cells:
        out.write(_line(row, widths))


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (cell.ljust(w) for cell, w in zip(cells, widths, strict=True))
    return (" " + " | ".join(padded)).rstrip() + "\n"
