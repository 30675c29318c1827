"""Scripts are cut where the dialect's tokenizer says, and their own lines are understood."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mzsql.cli.script import Piece, expand, is_complete, shipped_steps, split
from mzsql.repr.errors import InvalidParameter, SqlSyntaxError


def _statements(text: str) -> list[str]:
    return [piece.text for piece in split(text) if piece.kind == "statement"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        (" ;; ; ", []),
        ("SELECT 1", ["SELECT 1"]),
        ("SELECT 1; SELECT 2;", ["SELECT 1", "SELECT 2"]),
        ("SELECT ';' ; SELECT 2", ["SELECT ';'", "SELECT 2"]),
        ('SELECT 1 AS "a;b"; SELECT 2', ['SELECT 1 AS "a;b"', "SELECT 2"]),
        ("SELECT 1 -- no; cut\n; SELECT 2", ["SELECT 1", "SELECT 2"]),
        ("SELECT /* ; */ 1; SELECT 2", ["SELECT /* ; */ 1", "SELECT 2"]),
        ("SELECT 'it''s; so'; SELECT 2", ["SELECT 'it''s; so'", "SELECT 2"]),
        ("SELECT\n  1\n;\n", ["SELECT\n  1"]),
    ],
)
def test_split_at_semicolons(text: str, expected: list[str]) -> None:
    assert _statements(text) == expected


@given(st.lists(st.sampled_from(["SELECT 1", "SELECT ';'", 'SELECT "a;b"', "BEGIN"]), max_size=6))
def test_split_undoes_join(statements: list[str]) -> None:
    assert _statements(" ;\n".join(statements)) == statements


def test_an_open_quote_is_a_syntax_error() -> None:
    with pytest.raises(SqlSyntaxError):
        split("SELECT 'open")


def test_lines_of_their_own() -> None:
    pieces = split("\\echo hello there\n-- step: one\nSELECT 1;\n\\ir other.sql\n")
    assert pieces == [
        Piece("echo", "hello there", 1),
        Piece("step", "one", 2),
        Piece("statement", "SELECT 1", 3),
        Piece("ir", "other.sql", 4),
    ]


def test_included_files_are_found_beside_the_script(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "a.sql").write_text("SELECT 'a';\n\\ir b.sql\n")
    (tmp_path / "inner" / "b.sql").write_text("SELECT 'b';")
    pieces = expand("\\ir inner/a.sql\nSELECT 'c'", tmp_path)
    assert [piece.text for piece in pieces] == ["SELECT 'a'", "SELECT 'b'", "SELECT 'c'"]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidParameter, match=r"line 2: cannot read 'gone.sql': No such file"):
        list(expand("SELECT 1;\n\\ir gone.sql", tmp_path))


def test_an_unknown_command_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidParameter, match=r"unknown command \\gset"):
        list(expand("\\gset\n", tmp_path))


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("SELECT 1", False),
        ("SELECT 1;", True),
        ("SELECT 1; -- done", True),
        ("SELECT ';", False),
        ("\\d", True),
        ("SELECT 1\n;\n", True),
    ],
)
def test_what_the_shell_takes_as_complete(text: str, complete: bool) -> None:
    assert is_complete(text) is complete


def test_the_quickstart_has_the_steps_that_the_demo_narrates() -> None:
    titles = [step.title.partition(":")[0] for step in shipped_steps("quickstart.sql")]
    assert titles == ["tables", "load", "views", "explain", *["change"] * 4, "watch"]
