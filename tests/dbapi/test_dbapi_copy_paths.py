"""Connections whose COPY is confined to folders, or kept from files altogether."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

import mzsql
from mzsql.cli.app import app


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """One that is allowed, and one that is not, each with a file of a row."""
    for name in ("allowed", "allowed-not", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "rows.csv").write_text("1\n")
    return tmp_path / "allowed", tmp_path / "other"


def denied(con: mzsql.Connection, statement: str, what: str) -> None:
    with pytest.raises(mzsql.Error, match=f"permission denied to COPY {what}") as refused:
        con.execute(statement)
    assert refused.value.sqlstate == "42501"
    assert isinstance(refused.value, mzsql.ProgrammingError)


def test_copy_is_confined_to_folders_links_and_dots_followed(
    tmp_path: Path, folders: tuple[Path, Path]
) -> None:
    allowed, other = folders
    (allowed / "sub").mkdir()
    (allowed / "link").symlink_to(other)
    (allowed / "file.csv").symlink_to(other / "rows.csv")
    (other / "back").symlink_to(allowed)
    outside = [
        other / "rows.csv",
        allowed / ".." / "other" / "rows.csv",
        allowed / "link" / "rows.csv",
        allowed / "file.csv",
        tmp_path / "allowed-not" / "rows.csv",
        Path("/etc/passwd"),
        Path(os.path.relpath(other / "rows.csv")),
    ]
    with mzsql.connect(tmp_path / "env", copy_paths=[allowed]) as con:
        con.execute("CREATE TABLE t (a int)")
        for path in outside:
            for spelled in (str(path), f"file://{path.absolute()}"):
                denied(con, f"COPY t FROM '{spelled}' (FORMAT CSV)", "from a file")
                denied(con, f"COPY (SELECT 2) TO '{spelled}' (FORMAT CSV)", "to a file")
        denied(con, "COPY (SELECT 1) TO 'mem:x' (FORMAT CSV)", "to a file")
        denied(con, "COPY (SELECT 1) TO 's3://bucket/x' (FORMAT CSV)", "to a URL")
        # no word of whether a file is there
        denied(con, "COPY t FROM '/nowhere/at/all' (FORMAT CSV)", "from a file")
        for inside in (
            allowed / "rows.csv",
            other / "back" / "rows.csv",
            allowed / "sub" / ".." / "rows.csv",
        ):
            con.execute(f"COPY t FROM '{inside}' (FORMAT CSV)")
        con.execute(f"COPY t TO '{allowed}/sub/out.csv' (FORMAT CSV)")
        for change in ("DISCARD ALL", "RESET ALL"):
            con.execute(change)
            denied(con, f"COPY t FROM '{other}/rows.csv' (FORMAT CSV)", "from a file")
    assert (allowed / "sub" / "out.csv").read_text() == "1\n1\n1\n"
    assert (other / "rows.csv").read_text() == "1\n"


def test_copy_is_kept_from_files_altogether_and_from_no_client(
    tmp_path: Path, folders: tuple[Path, Path]
) -> None:
    allowed, _ = folders
    with mzsql.connect(tmp_path / "env", copy_paths=[]) as con:
        con.execute("CREATE TABLE t (a int)")
        denied(con, f"COPY t FROM '{allowed}/rows.csv' (FORMAT CSV)", "from a file")
        denied(con, f"COPY t TO '{allowed}/out.csv' (FORMAT CSV)", "to a file")
        with con.cursor() as cur:
            with cur.copy("COPY t FROM STDIN (FORMAT CSV)") as copy:
                copy.write("5\n")
            with cur.copy("COPY t TO STDOUT (FORMAT CSV)") as copy:
                assert b"".join(copy) == b"5\n"
        # another connection of the process has its own
        with mzsql.connect(tmp_path / "env") as free:
            free.execute(f"COPY t FROM '{allowed}/rows.csv' (FORMAT CSV)")
        denied(con, f"COPY t FROM '{allowed}/rows.csv' (FORMAT CSV)", "from a file")


@pytest.mark.parametrize("wrong", ["/tmp", b"/tmp", 5, [5], [None], ["a\0b"], [""], Path("/tmp")])
def test_what_are_no_folders_is_refused(tmp_path: Path, wrong: object) -> None:
    with pytest.raises(mzsql.ProgrammingError, match="copy_paths"):
        mzsql.connect(tmp_path / "env", copy_paths=wrong)  # type: ignore[arg-type]
    assert not (tmp_path / "env").exists()


def test_the_command_line_confines_it_too(tmp_path: Path, folders: tuple[Path, Path]) -> None:
    allowed, other = folders
    env = str(tmp_path / "env")
    run = CliRunner().invoke
    statement = "CREATE TABLE IF NOT EXISTS t (a int); COPY t FROM '{}/rows.csv' (FORMAT CSV)"
    for options, folder, fits in (
        (["--copy-path", str(allowed)], allowed, True),
        (["--copy-path", str(allowed)], other, False),
        (["--no-copy-files"], allowed, False),
        ([], other, True),
    ):
        result = run(app, ["sql", "--env", env, *options, statement.format(folder)])
        told = result.output + str(result.exception)
        assert ("permission denied to COPY from a file" not in told) == fits, told
