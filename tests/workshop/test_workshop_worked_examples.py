"""The worked examples of CONTRIBUTING: each change is applied to a copy of the engine, and what it adds is used."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from workshop_sources import ROOT, Look, Module, is_engine

_HEADING = re.compile(r"^### (.+)$", re.MULTILINE)
_DIFF = re.compile(r"^```diff\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LISTED = re.compile(r"^- `((?:mzsql|catalog)/[\w/]+\.(?:py|sql))`", re.MULTILINE)
_USE = """
import json, sys, time
import mzsql
from mzsql.frontend.parse.heads import whose
statements, target = json.loads(sys.argv[1]), sys.argv[2]
with mzsql.connect(target) as connection:
    cursor = connection.cursor()
    for statement in statements:
        cursor.execute(statement)
    rows = [] if cursor.description is None else cursor.fetchall()
    until = time.monotonic() + 60
    while not rows and cursor.description is not None and time.monotonic() < until:
        # What a replica tells of itself comes when it has looked.
        time.sleep(0.1)
        rows = cursor.execute(statements[-1]).fetchall()
    known = whose(statements[-1])[0].value
    print(json.dumps([mzsql.__file__, cursor.statusmessage, [list(row) for row in rows], known]))
"""


def _sections() -> dict[str, str]:
    """The worked examples by the first words of their headings."""
    text = (ROOT / "CONTRIBUTING.md").read_text().partition("## Worked examples\n")[2]
    text = re.split(r"^## ", text, maxsplit=1, flags=re.MULTILINE)[0]
    parts = _HEADING.split(text)[1:]
    return {
        heading.partition(":")[0]: body
        for heading, body in zip(parts[::2], parts[1::2], strict=True)
    }


def _copy(where: Path) -> None:
    """The engine in a directory of its own, its data packages where Python finds them without an installation."""
    leave = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "mzsql", where / "mzsql", ignore=leave)
    shutil.copytree(ROOT / "catalog", where / "catalog", ignore=leave)
    (where / "mzsql" / "system_catalog").symlink_to(where / "catalog")
    (where / "mzsql" / "scripts").symlink_to(ROOT / "sql")


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("example", "most", "statements", "status", "rows"),
    [
        ("A scalar function", 2, ["SELECT hypot(3, 4)"], "SELECT 1", [[5.0]]),
        (
            "A builtin relation",
            2,
            [
                "CREATE TABLE t (a int, b int)",
                "SELECT name, columns FROM mz_internal.mz_wide_tables",
            ],
            "SELECT 1",
            [["t", 2]],
        ),
        (
            "A unified introspection relation",
            3,
            [
                "ALTER SYSTEM SET step_engine = 'duckdb'",
                "CREATE TABLE t (a int)",
                "CREATE MATERIALIZED VIEW v AS SELECT count(*) FROM t",
                "SELECT export_id, import_id FROM mz_internal.mz_compute_imports_unified",
            ],
            "SELECT 1",
            [["u2", "u1"]],
        ),
        ("A statement", 4, ["CHECKPOINT"], "CHECKPOINT", []),
    ],
)
def test_what_a_worked_example_adds_works(
    tmp_path: Path, example: str, most: int, statements: list[str], status: str, rows: list[object]
) -> None:
    (change,) = _DIFF.findall(_sections()[example])
    files = re.findall(r"^\+\+\+ b/(\S+)$", change, re.MULTILINE)
    assert 0 < len(set(files)) <= most
    engine = tmp_path / "engine"
    _copy(engine)
    apply = ["git", "apply", "--unsafe-paths", "-C1", f"--directory={engine}", "-"]
    subprocess.run(apply, input=change, text=True, check=True, cwd=engine)
    run = subprocess.run(
        [sys.executable, "-c", _USE, json.dumps(statements), str(tmp_path / "env")],
        capture_output=True,
        text=True,
        cwd=tmp_path,  # what is started with -c looks in its own directory first
        env=os.environ | {"PYTHONPATH": str(engine)},
        check=False,
    )
    assert run.returncode == 0, run.stderr
    used, said, found, known = json.loads(run.stdout.splitlines()[-1])
    assert Path(used).is_relative_to(engine)
    # Spark's sql() takes a statement that only mzsql has; it reads relations by itself.
    assert known == ("ours" if example == "A statement" else "others")
    assert (said, found) == (status, rows)


@dataclass(frozen=True)
class Words:
    """What a module's code names."""

    #: Names that it reads, defines or imports.
    names: frozenset[str]
    #: Words of its texts of one line: what statements and tags are made of; the list of all keywords has many lines.
    keywords: frozenset[str]
    #: Nodes of the physical plan: `lir.<name>`, and what is imported from there.
    lir: frozenset[str]


@Look
def words_of(module: Module) -> Words:
    """The words of a module."""
    names, keywords, lir = set[str](), set[str](), set[str]()
    for node in module.nodes:
        match node:
            case ast.Attribute(value=ast.Name(id="lir"), attr=name):
                names.add(name)
                lir.add(name)
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.alias(name=name):
                names.add(name)
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                names.add(name)
            case ast.Constant(value=str(text)) if "\n" not in text:
                keywords.update(text.split())
            case ast.ImportFrom(module="mzsql.lir.plan", names=found):
                lir.update(one.name for one in found)
    return Words(frozenset(names), frozenset(keywords), frozenset(lir))


def _naming(names: set[str], keywords: set[str]) -> set[str]:
    """The engine's files that have one of the names in the code, or one of the keywords in a text."""
    return {
        file
        for file, words in words_of().items()
        if is_engine(file) and (words.names & names or words.keywords & keywords)
    }


def _node(*names: str) -> set[str]:
    """The engine's files that name one of these nodes of the physical plan."""
    return {
        file for file, words in words_of().items() if is_engine(file) and words.lir & set(names)
    }


def test_a_statement_of_its_family_alone_stands_where_contributing_says() -> None:
    family = {
        f"mzsql/{room}/cursors.py"
        for room in ("frontend/parse", "frontend/plan", "adapter/statements")
    }
    assert _naming({"Discard", "DiscardPlan"}, {"DISCARD"}) == family


def test_a_kind_of_object_stands_where_contributing_says() -> None:
    listed = set(_LISTED.findall(_sections()["A kind of object"]))
    told = {"Type", "CreateType", "CreateTypePlan", "plan_create_type", "create_type"}
    assert {one for one in listed if one.endswith(".py")} == _naming(told, {"TYPE", "TYPES"})
    assert all((ROOT / one).is_file() for one in listed)
    assert len(listed) <= 10


def test_a_node_of_the_physical_plan_stands_where_contributing_says() -> None:
    listed = set(_LISTED.findall(_sections()["A node of the physical plan"]))
    plan = {"mzsql/lir/plan.py"}
    assert listed == _node("Threshold") | plan
    assert len(listed | {"mzsql/render/step/step.py"}) <= 8
    assert len(_node("Negate") | plan) == 6
    algorithm = {
        "mzsql/lir/reductions.py",
        "mzsql/render/nodes/topk.py",
        "mzsql/render/nodes/fronts.py",
    }
    assert _node("TopK", "TopKPlan") | plan == listed | algorithm
