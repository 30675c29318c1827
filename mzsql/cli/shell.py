"""The shell: multi-line statements, history, completion of keywords and names, and psql's most used backslash commands.

Promise: a failed statement does not change the shell's state; Ctrl-C drops the input or interrupts the running
statement, Ctrl-D leaves. Without a terminal it reads statements from stdin, as psql does. The history is kept in the
user's state directory.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import typer
from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import PygmentsLexer
from pygments.lexers.sql import PostgresLexer

import mzsql
from mzsql.cli.output import error_lines
from mzsql.cli.reporting import report, run_pieces
from mzsql.cli.running import run_statement
from mzsql.cli.script import decoded, expand, is_complete
from mzsql.frontend.grammar.dialect import Dialect
from mzsql.frontend.parse.parse import BEGINNINGS
from mzsql.location.directories import user_directory
from mzsql.location.privacy import close_to_others, make_file
from mzsql.repr.errors import SqlError

_HELP = r"""A statement ends with a semicolon. Besides statements:
  \d              list tables, views, materialized views and sources
  \d NAME         show a relation's columns
  \dt \dv \dm \di list tables, views, materialized views, indexes
  \l              list databases
  \i FILE         run a script
  SUBSCRIBE t     shows the rows of t, then its changes as they happen, until Ctrl-C
  \timing         switch the display of times on or off
  \?              this help
  \q              leave (so does Ctrl-D)
"""

_LISTS = {
    "\\d": "SELECT s.name AS schema, r.name, r.type FROM mz_catalog.mz_relations AS r "
    "JOIN mz_catalog.mz_schemas AS s ON s.id = r.schema_id "
    "WHERE s.database_id IS NOT NULL ORDER BY 1, 2",
    "\\dt": "SHOW TABLES",
    "\\dv": "SHOW VIEWS",
    "\\dm": "SHOW MATERIALIZED VIEWS",
    "\\di": "SHOW INDEXES",
    "\\l": "SELECT id, name FROM mz_catalog.mz_databases ORDER BY name",
}

#: Words that begin clauses but are not sqlglot keywords.
_CLAUSE_WORDS = """
    CURSOR STDIN STDOUT ENVELOPE UPSERT DEBEZIUM SNAPSHOT PROGRESS WITHIN TIMESTAMP
""".split()  # noqa: SIM905  a list of words to read
_KEYWORDS = sorted(
    {w for w in Dialect.Tokenizer.KEYWORDS if w.isalpha() and w.isupper()}
    | BEGINNINGS
    | {*_CLAUSE_WORDS}
)


class Names(Completer):
    """Completes keywords, schemas, relations and columns; reads the names again after each statement that may change
    them.
    """

    def __init__(self, fetch: Callable[[], Iterable[str]]) -> None:
        self._fetch = fetch
        self._names: list[str] | None = None

    def forget(self) -> None:
        """Read the names again when next needed."""
        self._names = None

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        """The words that begin like the one before the cursor.

        Args:
            document: the input.
            complete_event: not used.
        """
        del complete_event
        word = document.get_word_before_cursor(WORD=True).rpartition("(")[2].rpartition(",")[2]
        if not word:
            return
        if self._names is None:
            self._names = sorted(set(self._fetch()))
        for name in self._names:
            if name.startswith(word):
                yield Completion(name, start_position=-len(word))
        for keyword in _KEYWORDS:
            if keyword.startswith(word.upper()):
                shown = keyword if word[0].isupper() else keyword.lower()
                yield Completion(shown, start_position=-len(word))


def history_file() -> Path:
    """The history's file: ``$XDG_STATE_HOME/mzsql/history``."""
    path = user_directory("XDG_STATE_HOME", ".local/state") / "mzsql" / "history"
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with contextlib.suppress(OSError):
        # Only the user may read it: statements contain data.
        make_file(path)
        close_to_others(path)
    return path


class _KnownNames:
    """The names that an environment's catalog has."""

    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor

    def fetch(self) -> Iterable[str]:
        """Schemas, relations, with and without their schema, and columns; some several times."""
        self._cursor.execute(
            "SELECT s.name, r.name, c.name FROM mz_catalog.mz_columns AS c "
            "JOIN mz_catalog.mz_relations AS r ON r.id = c.id "
            "JOIN mz_catalog.mz_schemas AS s ON s.id = r.schema_id"
        )
        for schema, relation, column in self._cursor.fetchall():
            yield from (schema, f"{schema}.{relation}", relation, column)


class Shell:
    """A run of the shell on an open connection."""

    def __init__(self, connection: Any) -> None:
        self._cursor = connection.cursor()
        self._timing = False
        self.names = Names(_KnownNames(self._cursor).fetch)

    def run(self, text: str) -> bool:
        """Execute the input.

        Returns:
            False if it was to leave.
        """
        stripped = text.strip()
        if stripped.startswith("\\"):
            return self._command(stripped.rstrip(";").strip())
        for piece in expand(text, Path(), origin="input"):
            self._statement(piece.text)
        return True

    def _command(self, line: str) -> bool:
        word, _, argument = line.partition(" ")
        argument = argument.strip()
        if word in ("\\q", "\\quit"):
            return False
        if word == "\\?":
            typer.echo(_HELP)
        elif word == "\\timing":
            self._timing = not self._timing
            typer.echo(f"Timing is {'on' if self._timing else 'off'}.")
        elif word in ("\\i", "\\ir"):
            for piece in expand(f"{word} {argument}", Path(), origin="input"):
                if piece.kind == "statement":
                    self._statement(piece.text)
                elif piece.kind == "echo":
                    typer.echo(piece.text)
        elif word == "\\d" and argument:
            self._statement(f"SHOW COLUMNS FROM {argument}")
        elif word in _LISTS:
            self._statement(_LISTS[word])
        else:
            typer.echo(f"invalid command {word}; \\? lists what there is")
        return True

    def _statement(self, statement: str) -> None:
        begun = time.perf_counter()
        try:
            run_statement(self._cursor, statement, "table")
        except (SqlError, mzsql.Error) as error:
            sys.stderr.write(error_lines(error, statement))
        finally:
            self.names.forget()
        if self._timing:
            typer.echo(f"Time: {(time.perf_counter() - begun) * 1000:.3f} ms")


def _bindings() -> KeyBindings:
    """Enter submits a complete statement, else begins a new line."""
    bindings = KeyBindings()

    @bindings.add("enter", filter=Condition(lambda: True))
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        text = buffer.text
        if buffer.complete_state and buffer.complete_state.current_completion:
            buffer.complete_state = None
        elif not text.strip() or is_complete(text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    return bindings


def run_shell(env: Path, copy_paths: list[Path] | None = None) -> None:
    """Run the shell until the user leaves.

    Args:
        env: the environment's directory.
        copy_paths: the directories that COPY may use.
    """
    if not sys.stdin.isatty():
        run_pieces(
            list(expand(decoded(sys.stdin.buffer.read(), "stdin"), Path(), origin="stdin")),
            env,
            "table",
            copy_paths,
        )
        return
    with mzsql.connect(str(env), copy_paths=copy_paths) as connection:
        shell = Shell(connection)
        prompt: PromptSession[str] = PromptSession(
            history=FileHistory(str(history_file())),
            completer=shell.names,
            complete_while_typing=False,
            key_bindings=_bindings(),
            lexer=PygmentsLexer(PostgresLexer),
            multiline=True,
            prompt_continuation=lambda width, _number, _soft: "-> ".rjust(width),
        )
        typer.echo(f"mzsql {mzsql.__version__}; \\? for help, \\q to leave.")
        while True:
            try:
                text = prompt.prompt(f"{env.name}=> ")
            except KeyboardInterrupt:
                continue
            except EOFError:
                return
            if not text.strip():
                continue
            try:
                if not shell.run(text):
                    return
            except (Exception, KeyboardInterrupt) as error:
                report(error)
