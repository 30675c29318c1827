"""Whatever is on the command line: what it asks for, or an error for a person and an exit code; never a traceback, never an internal error.

The commands and their parameters are found by looking at them, so a new one is held to this without being named here.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from mzsql.cli import app as cli

NUMBERS = ["", "x", "-1", "99999999999999999999", "nan"]
TEXTS = ["", "a\udcff", "~nobody_at_all/x", "x" * 5000, "profile:nope"]


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if hasattr(group, "commands"):
        for name, command in group.commands.items():
            yield from commands(command, (*path, name))
    if path:
        yield path, group


ALL = list(commands(typer.main.get_command(cli.app)))


def lines() -> Iterator[list[str]]:
    """Command lines: each parameter of each command with each kind of junk, the others as they have to be."""
    for path, command in ALL:
        for parameter in command.params:
            if getattr(parameter, "is_flag", False) or (path, parameter.name) == (
                ("demo",),
                "directory",
            ):
                continue  # it takes nothing; it may be any folder, for minutes of work
            numeric = getattr(parameter, "min", None) is not None  # every number has a least one
            for junk in NUMBERS if numeric else TEXTS:
                if (path, parameter.name, junk) == (("serve-replicas",), "env", ""):
                    continue  # this folder, in which other lines make an environment: it runs until it is stopped
                given = [
                    word
                    for other in command.params
                    if other is parameter or other.required
                    for word in spelled(other, junk if other is parameter else "/dev/null/x")
                ]
                yield [*path, *given]


def spelled(parameter: Any, value: str) -> list[str]:
    """A parameter with a value, as it stands on a command line."""
    if parameter.param_type_name == "option":
        return [f"{parameter.opts[0]}={value}"]
    return [] if value.startswith("-") else [value]


def run(
    line: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[int, str]:
    monkeypatch.setattr(sys, "argv", ["mzsql", *line])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"SELECT \xff")))
    code: object = 0
    try:
        cli.main()
    except SystemExit as ended:
        code = ended.code or 0
    return code if isinstance(code, int) else 1, capsys.readouterr().err


def test_every_command_takes_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert {("sql",), ("plugins", "test"), ("deploy", "promote")} <= {path for path, _ in ALL}
    for line in lines():
        code, said = run(line, monkeypatch, capsys)
        assert code in (0, 1, 2), (line, said)
        assert "Traceback" not in said, (line, said)
        assert code == 0 or said.strip(), line
