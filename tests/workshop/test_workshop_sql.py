"""The SQL that is shipped: each builtin relation is documented, each script parses."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mzsql.catalog.builtin import Builtin, builtins
from mzsql.cli.script import expand
from mzsql.frontend import parse_statements

ROOT = Path(__file__).parents[2]
_COLUMN = re.compile(r"^(\w+): (\S.*)$")


def _files(folder: str) -> list[Path]:
    return sorted((ROOT / folder).glob("**/*.sql"))


def _documented(builtin: Builtin) -> list[str]:
    _, _, columns = builtin.comment.partition("\n\n")
    return [m[1] for line in columns.splitlines() if (m := _COLUMN.match(line))]


@pytest.mark.parametrize("builtin", builtins().values(), ids=lambda b: b.full_name)
def test_a_builtin_relation_is_documented(builtin: Builtin) -> None:
    purpose = builtin.comment.partition("\n\n")[0]
    assert purpose.endswith(".")
    documented = _documented(builtin)
    if builtin.desc is not None:
        assert documented == list(builtin.desc.names)
    else:
        (statement,) = parse_statements(builtin.query)
        named = [column.alias_or_name for column in statement.query.selects]
        assert documented == named


@pytest.mark.parametrize("path", _files("catalog"), ids=lambda p: p.stem)
def test_a_relation_is_where_its_name_says(path: Path) -> None:
    assert (path.parent.name, path.stem) in {(b.schema, b.name) for b in builtins().values()}


def test_there_are_all_22_queries() -> None:
    assert [p.stem for p in _files("sql/tpch") if p.stem != "schema"] == [
        f"q{n:02}" for n in range(1, 23)
    ]


@pytest.mark.parametrize("path", _files("sql"), ids=lambda p: p.stem)
def test_a_script_parses(path: Path) -> None:
    pieces = [p for p in expand(path.read_text(), path.parent) if p.kind == "statement"]
    assert pieces
    for piece in pieces:
        assert len(parse_statements(piece.text)) == 1
