"""The way of a SELECT from its text to its rows, as docs/architecture.md has it: how many files it takes, and that it never goes back up.

Counted is a file that takes the query from another one, as whatever it is by then: the text, the statement, the plan, the HIR query, the
decorrelated query, the way to answer it (a `PeekPlan`), the query planned for the executor. It takes it as an argument, or finds it in what
it was made with: the variables that a function stored somewhere was defined among, the arguments that it was bound to. What these
files only use on the way (types, expressions, the stores) does not have the query. A step up is a call that hands the query to a room above
the caller's, in the order that import-linter holds imports to; a stored function is called by whoever calls it, wherever it was stored.
"""

from __future__ import annotations

import sys
import tomllib
import typing
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import mzsql
from mzsql.compute.peek.query import PlannedQuery
from mzsql.frontend import hir
from mzsql.frontend.parse import statements as st
from mzsql.frontend.plan import plans
from mzsql.transform.fast_path import Asked, PeekPlan

ROOT = Path(__file__).parents[2]
_ENGINE = f"{ROOT / 'mzsql'}/"
#: How properties are kept, as Python's own are: whoever asks for one calls the method that computes it.
_PROPERTIES = f"{_ENGINE}repr/lazy.py"
_PEEKS = typing.get_args(PeekPlan)
_QUERY = (st.Select, plans.SelectPlan, hir.Query, Asked, *_PEEKS, PlannedQuery)
_MOST_FILES = 15


def _places() -> dict[str, int]:
    """How far up each room and module stands among its siblings, where a contract says so."""
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return {
        f"{container}.{name.strip()}": place
        for contract in config["tool"]["importlinter"]["contracts"]
        if contract["type"] == "layers"
        for container in contract["containers"]
        for place, layer in enumerate(reversed(contract["layers"]))
        for name in layer.replace(":", "|").split("|")
    }


_PLACES = _places()


def _goes_up(caller: str, called: str) -> bool:
    one, other = caller.split("."), called.split(".")
    for length in range(1, min(len(one), len(other)) + 1):
        a, b = ".".join(one[:length]), ".".join(other[:length])
        if a != b:
            return _PLACES.get(a, 0) < _PLACES.get(b, 0) if a in _PLACES and b in _PLACES else False
    return False


class Way:
    """The calls of the engine's functions that hand a query from one file to another."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.calls: list[tuple[str, str]] = []
        #: The kinds of `PeekPlan` that were handed on.
        self.peeks: set[str] = set()

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event != "call" or not _is_engine(frame) or not self._has_query(frame):
            return
        caller = frame.f_back
        while caller is not None and not _is_engine(caller):
            caller = caller.f_back
        here = _module(frame)
        if caller is not None and _module(caller) != here:
            self.calls.append((_module(caller), here))

    def _has_query(self, frame: FrameType) -> bool:
        code = frame.f_code
        count = code.co_argcount + code.co_kwonlyargcount
        names = (*code.co_varnames[:count], *code.co_freevars)
        given = [frame.f_locals.get(name) for name in names]
        self.peeks |= {one.__struct_config__.tag for one in given if isinstance(one, _PEEKS)}
        return any(isinstance(one, _QUERY) or one is self._text for one in given)

    @property
    def files(self) -> set[str]:
        """What the query came to."""
        return {called for _, called in self.calls}

    @property
    def up(self) -> list[tuple[str, str]]:
        """The steps back up."""
        return [one for one in self.calls if _goes_up(*one)]


def _is_engine(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    return file.startswith(_ENGINE) and file != _PROPERTIES


def _module(frame: FrameType) -> str:
    path = Path(frame.f_code.co_filename).relative_to(ROOT).with_suffix("")
    return ".".join(path.parts)


@contextmanager
def _followed(text: str) -> Iterator[Way]:
    way = Way(text)
    before = sys.getprofile()
    sys.setprofile(way)
    try:
        yield way
    finally:
        sys.setprofile(before)


@pytest.fixture(scope="module")
def con(tmp_path_factory: pytest.TempPathFactory) -> Iterator[mzsql.Connection]:
    with mzsql.connect(str(tmp_path_factory.mktemp("env"))) as connection:
        connection.execute("CREATE TABLE t (a int, b text)")
        connection.execute("INSERT INTO t VALUES (1, 'x'), (2, 'y')")
        connection.execute("CREATE TABLE s (a int, b text)")
        connection.execute("INSERT INTO s VALUES (1, 'x')")
        connection.execute("CREATE INDEX s_a ON s (a)")
        yield connection


@pytest.mark.parametrize(
    ("text", "peek"),
    [
        ("SELECT 1", "constant"),
        ("SELECT b FROM s WHERE a = 1", "peek_index"),
        ("SELECT b FROM t LIMIT 1", "peek_persist"),
        ("SELECT max(b) FROM t WHERE a > 1", "dataflow"),
        ("SHOW DATABASES", "dataflow"),
    ],
)
def test_a_select_goes_down_through_few_files(con: mzsql.Connection, text: str, peek: str) -> None:
    with _followed(text) as way:
        rows = con.execute(text).fetchall()
    assert len(rows) == 1
    assert peek in way.peeks
    assert {"mzsql.adapter.statements.selects", "mzsql.compute.peek.execute"} <= way.files
    assert len(way.files) <= _MOST_FILES, sorted(way.files)
    assert way.up == []


def test_queries_inside_of_other_statements_go_down_too(con: mzsql.Connection) -> None:
    con.execute("PREPARE p AS SELECT b FROM t WHERE a > $1")
    for text in ("EXECUTE p (1)", "DECLARE c CURSOR FOR SELECT b FROM t; FETCH 1 c"):
        with _followed(text) as way:
            assert len(con.execute(text).fetchall()) == 1
        assert {"mzsql.adapter.statements.selects", "mzsql.compute.peek.execute"} <= way.files
        assert way.up == []


def test_explain_goes_down_for_the_plan_that_it_prints(con: mzsql.Connection) -> None:
    text = "EXPLAIN OPTIMIZED PLAN FOR SELECT max(b) FROM t WHERE a > 2"
    with _followed(text) as way:
        assert len(con.execute(text).fetchall()) == 1
    assert {"mzsql.adapter.peek.plans", "mzsql.transform.fast_path"} <= way.files
    assert way.up == []
