"""The examples of the README and the docs run as they stand, and fail where they say that they do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import mzsql
from mzsql.cli.output import error_lines
from mzsql.cli.script import split

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_FENCE = re.compile(r"^```(\w+)( \w+)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_EXPECTED = re.compile(r"^-- (ERROR:.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    language: str
    flag: str
    text: str
    line: int


def _blocks(page: Path) -> Iterator[Block]:
    text = page.read_text()
    for match in _FENCE.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        yield Block(match[1], (match[2] or "").strip(), match[3], line)


def _answer(cursor: mzsql.Cursor, statement: str) -> None:
    cursor.execute(statement)
    if cursor.description is not None:
        cursor.fetchall()


def _run_sql(env: Path, block: Block) -> None:
    with mzsql.connect(str(env)) as connection:
        cursor = connection.cursor()
        for piece in split(block.text):
            _answer(cursor, piece.text)


def _fail_sql(env: Path, block: Block) -> None:
    expected = _EXPECTED.search(block.text)
    assert expected is not None, "a failing example says how it fails"
    statement = block.text[: expected.start()].strip().rstrip(";")
    with mzsql.connect(str(env)) as connection:
        cursor = connection.cursor()
        with pytest.raises(mzsql.Error) as failure:
            _answer(cursor, statement)
    assert error_lines(failure.value).startswith(expected[1].rstrip())


RUNNABLE = [page for page in PAGES if any(b.language in ("sql", "python") for b in _blocks(page))]


@pytest.mark.spark
@pytest.mark.parametrize("page", RUNNABLE, ids=lambda p: p.name)
def test_examples_run(
    page: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    spark: SparkSession,
) -> None:
    assert spark is not None
    monkeypatch.chdir(tmp_path)
    env = tmp_path / "page"
    ran = 0
    names = {"env": str(env)}  # as a reader goes on, what a page has defined is there further down
    for block in _blocks(page):
        where = f"{page.name}:{block.line}"
        try:
            if block.language == "sql":
                (_fail_sql if block.flag == "error" else _run_sql)(env, block)
            elif block.language == "python" and block.flag != "excerpt":
                capsys.readouterr()
                exec(compile(block.text, where, "exec"), names)
            elif block.flag == "prints":
                assert capsys.readouterr().out == block.text
            else:
                continue
        except Exception as error:
            pytest.fail(f"{where}: {type(error).__name__}: {error}")
        ran += 1
    assert ran


def test_excerpts_are_what_the_example_says() -> None:
    """A block marked ``excerpt`` stands in a file of ``examples/``, letter by letter."""
    paths = [p for p in (ROOT / "examples").rglob("*") if p.suffix in (".py", ".toml")]
    sources = [path.read_text() for path in paths]
    excerpts = [(page, b) for page in PAGES for b in _blocks(page) if b.flag == "excerpt"]
    assert excerpts
    for page, block in excerpts:
        found = any(block.text in source for source in sources)
        assert found, f"{page.name}:{block.line} is in no example"


def test_links_lead_somewhere() -> None:
    for page in [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "bench" / "README.md"]:
        for target in re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
