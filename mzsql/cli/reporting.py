"""Statements' errors on the terminal, and exit codes.

Promise: a user's mistake is one error in the format of PostgreSQL's tools; an internal error says that it is one.
"""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path

import typer

import mzsql
from mzsql.cli.output import error_lines
from mzsql.cli.running import run_statement
from mzsql.cli.script import Piece
from mzsql.repr.errors import InternalError, SqlError, lacking

#: If set, internal errors are printed with their traceback.
TRACEBACK_VARIABLE = "MZSQL_TRACEBACK"

_USER_FAULT = 1
_BUG = 70
_INTERRUPTED = 130


class StatementFailed(Exception):
    """A statement of a script or command line failed; it carries the statement for the error's caret."""

    def __init__(self, error: Exception, statement: str) -> None:
        super().__init__(str(error))
        self.error = error
        self.statement = statement


def run_pieces(
    pieces: list[Piece], env: Path, style: str, copy_paths: list[Path] | None = None
) -> None:
    """Run the pieces of a script in an environment and print their results; stops at the first error.

    Args:
        pieces: the pieces.
        env: the environment's directory.
        style: the style of results.
        copy_paths: the directories that COPY may use.

    Raises:
        StatementFailed: a statement failed; its cause is what it raised.
    """
    with (
        mzsql.connect(str(env), copy_paths=copy_paths) as connection,
        connection.cursor() as cursor,
    ):
        for piece in pieces:
            if piece.kind == "echo":
                typer.echo(piece.text)
            elif piece.kind == "statement":
                try:
                    run_statement(cursor, piece.text, style)
                except Exception as error:
                    raise StatementFailed(error, piece.text) from error


def _tell(text: str) -> None:
    """Print on stderr any text, such as a path whose bytes are not UTF-8."""
    sys.stderr.write(text.encode(errors="backslashreplace").decode())


def report(error: BaseException) -> int:
    """Print an error for the user.

    Returns:
        The exit code.
    """
    statement = None
    if isinstance(error, StatementFailed):
        statement = error.statement
        error = error.error
    if isinstance(error, KeyboardInterrupt):
        sys.stderr.write("interrupted\n")
        return _INTERRUPTED
    error = lacking(error) or error
    known = isinstance(error, SqlError | mzsql.Error | OSError)
    if known and not isinstance(error, InternalError | mzsql.InternalError):
        _tell(error_lines(error, statement))
        return _USER_FAULT
    _tell(f"INTERNAL {error_lines(error, statement)}")
    if os.environ.get(TRACEBACK_VARIABLE):
        traceback.print_exception(error)
    else:
        sys.stderr.write(
            f"HINT:  This is a bug in mzsql; {TRACEBACK_VARIABLE}=1 shows where it happened.\n"
        )
    return _BUG
