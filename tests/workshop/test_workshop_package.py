"""What is shipped: the packages listed are the packages there are, and a built wheel works by itself."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def _setuptools() -> dict[str, object]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]


def _tracked() -> list[str]:
    return subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()


def test_the_list_of_packages_is_the_tree() -> None:
    found = {
        ".".join(init.parent.relative_to(ROOT).parts) for init in ROOT.glob("mzsql/**/__init__.py")
    }
    assert set(_setuptools()["packages"]) == found | set(_setuptools()["package-dir"])


#: Their rooms stand in the tables, they themselves do not; the functions' rooms stand in one row.
_HALLS = ("adapter", "compute", "frontend")


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/architecture.md"])
def test_every_room_stands_in_the_tables_of_rooms(page: str) -> None:
    packages = [
        init.parent.relative_to(ROOT / "mzsql").as_posix()
        for init in (ROOT / "mzsql").glob("*/**/__init__.py")
    ]
    rows = [line for line in (ROOT / page).read_text().splitlines() if line.startswith("| `")]
    told = {name for row in rows for name in re.findall(r"`([\w/]+)`", row.split("|")[1])}
    rooms = {room for room in packages if not room.startswith("expr/functions/")}
    assert rooms - told - {*_HALLS, "testing"} == set()


def test_mapped_packages_are_there_and_hold_sql() -> None:
    for folder in _setuptools()["package-dir"].values():
        assert (ROOT / folder / "__init__.py").is_file()
        assert list((ROOT / folder).glob("**/*.sql"))


def test_no_file_names_where_packages_come_from() -> None:
    locks = {"uv.lock", "poetry.lock", "pip.conf", "Pipfile.lock"}
    assert not [name for name in _tracked() if Path(name).name in locks]


@pytest.mark.long
def test_the_wheel_works_without_the_tree(tmp_path: Path) -> None:
    # From a copy: what an earlier build left in the tree must not slip into the wheel.
    source = tmp_path / "source"
    for name in _tracked():
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, source / name)
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--outdir", str(tmp_path), str(source)],
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    for folder, package in (("catalog", "mzsql/system_catalog"), ("sql", "mzsql/scripts")):
        expected = {
            f"{package}/{file.relative_to(ROOT / folder).as_posix()}"
            for file in (ROOT / folder).glob("**/*.sql")
        }
        assert expected
        assert expected <= names
    assert "mzsql/py.typed" in names
    assert not [name for name in names if name.startswith(("tests/", "bench/", "catalog/", "sql/"))]

    empty = tmp_path / "venv"
    venv.create(empty, with_pip=True)
    python = empty / "bin" / "python"
    subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", str(wheel)],
        check=True,
    )
    # The dependencies come from this installation's folder; its editable mzsql does not, as .pth files there are not read.
    libraries = next(p for p in sys.path if p.endswith("site-packages"))
    program = (
        "import mzsql, sys, importlib.resources as r\n"
        f"assert mzsql.__file__.startswith({str(empty)!r}), mzsql.__file__\n"
        "assert r.files('mzsql.system_catalog').joinpath('mz_internal/mz_hydration_statuses.sql').is_file()\n"
        "assert r.files('mzsql.system_catalog').joinpath('ids.json').is_file()\n"
        "assert r.files('mzsql.system_catalog').joinpath('columns.json').is_file()\n"
        "assert r.files('mzsql.scripts').joinpath('tpch/q03.sql').is_file()\n"
        "con = mzsql.connect('env')\n"
        "cur = con.cursor()\n"
        "cur.execute('CREATE TABLE t (a integer)')\n"
        "cur.execute('INSERT INTO t VALUES (1), (2)')\n"
        "cur.execute('SELECT sum(a) FROM t')\n"
        "print(cur.fetchall())\n"
        "con.close()\n"
    )
    done = subprocess.run(
        [python, "-c", program],
        env={"PYTHONPATH": libraries, "PATH": "/usr/bin:/bin"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[(3,)]"
    told = subprocess.run(
        [empty / "bin" / "mzsql", "--version"],
        env={"PYTHONPATH": libraries, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.startswith("mzsql 0.")
