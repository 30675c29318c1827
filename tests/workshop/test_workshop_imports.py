"""What benchmarks, tests and examples import from the project is there, under that name.

Most of them are started by longer tests only, hours after a name was changed.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OURS = ("mzsql", "pyspark_mzsql", "mzsql_s3", "mzsql_postgres")
FOLDERS = ("bench", "tests", "plugins", "examples")


def programs() -> list[Path]:
    return sorted(file for folder in FOLDERS for file in (ROOT / folder).rglob("*.py"))


def is_ours(module: str) -> bool:
    return module.split(".", maxsplit=1)[0] in OURS


def imported(tree: ast.Module) -> Iterator[tuple[int, str, str | None]]:
    """Line, module and name of each import from the project; no name where the module itself is imported."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.ImportFrom)
            and node.module
            and not node.level
            and is_ours(node.module)
        ):
            yield from ((node.lineno, node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (
                (node.lineno, alias.name, None) for alias in node.names if is_ours(alias.name)
            )


def used(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    """Line, module and attribute of each `module.attribute` of the project's; none of names that stand for something else too."""
    others = {
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
    }
    others |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    modules = {
        alias.asname or alias.name: (node.module, alias.name)
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        and node.module
        and not node.level
        and is_ours(node.module)
        for alias in node.names
        if (alias.asname or alias.name) not in others
    }
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id in modules
        ):
            package, name = modules[node.value.id]
            if is_module(f"{package}.{name}"):
                yield node.lineno, f"{package}.{name}", node.attr


def is_module(name: str) -> bool:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        return False
    return True


def is_there(module: str, name: str | None) -> bool:
    if not is_module(module):
        return False
    return (
        name is None
        or name == "*"
        or hasattr(importlib.import_module(module), name)
        or is_module(f"{module}.{name}")
    )


def missing(text: str) -> list[str]:
    tree = ast.parse(text)
    return [
        f"line {line}: {module} has no {name}" if name else f"line {line}: no {module}"
        for line, module, name in (*imported(tree), *used(tree))
        if not is_there(module, name)
    ]


@pytest.mark.parametrize("file", programs(), ids=lambda file: str(file.relative_to(ROOT)))
def test_what_is_imported_from_the_project_is_there(file: Path) -> None:
    assert not missing(file.read_text())


def test_names_that_went_are_found() -> None:
    text = """
from mzsql.adapter.planning.planner import Planner, no_such_function
from mzsql.no_such_room import anything
import mzsql.no_such_module
from mzsql.frontend.plan import plans
plans.SelectPlan
plans.NoSuchPlan
"""
    assert missing(text) == [
        "line 2: mzsql.adapter.planning.planner has no no_such_function",
        "line 3: mzsql.no_such_room has no anything",
        "line 4: no mzsql.no_such_module",
        "line 7: mzsql.frontend.plan.plans has no NoSuchPlan",
    ]
