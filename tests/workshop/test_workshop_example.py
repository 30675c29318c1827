"""The example of a plugin as a stranger has it: a distribution of its own, built, installed beside mzsql's, found and tried there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "mzsql-redis"

# Starts a server for the plugin under test, then does what it is told with the server's URL.
ON_A_SERVER = """
import subprocess, sys
from redis_server import RedisServer
with RedisServer() as server:
    for words in (["plugins", "test", server.url("kit")], ["plugins", "--json"]):
        done = subprocess.run([sys.argv[1], *words], capture_output=True, text=True)
        sys.stderr.write(done.stdout + done.stderr if words[1] == "test" else done.stderr)
        assert done.returncode == 0, done.returncode
    sys.stdout.write(done.stdout)
"""


def _tracked(folder: Path) -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=folder, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    return [Path(name) for name in listed if (folder / name).is_file()]


def _built(folder: Path, work: Path) -> Path:
    """The wheel of what is tracked in ``folder``; from a copy, as a build leaves things behind."""
    source = work / "source"
    for name in _tracked(folder):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(folder / name, source / name)
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--outdir", str(work), str(source)],
        check=True,
        capture_output=True,
    )
    (wheel,) = work.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheels of mzsql and of the example; what both need is borrowed from this one."""
    home = tmp_path_factory.mktemp("stranger")
    wheels = [_built(ROOT, home / "mzsql"), _built(EXAMPLE, home / "redis")]
    venv.create(home / "venv", with_pip=True)
    python = home / "venv" / "bin" / "python"
    install = [python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*install, *map(str, wheels)], check=True, capture_output=True)
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    own = subprocess.run([python, "-c", where], capture_output=True, text=True, check=True)
    borrowed = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (Path(own.stdout.strip()) / "borrowed.pth").write_text("\n".join(sorted(borrowed)) + "\n")
    return home


def _variables(home: Path) -> dict[str, str]:
    dropped = ("PYTHONPATH", "VIRTUAL_ENV", "COVERAGE_PROCESS_START")
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    return {**kept, "XDG_STATE_HOME": str(home / "state"), "PYTHONDONTWRITEBYTECODE": "1"}


@pytest.mark.long
def test_its_own_tests_pass_where_it_is_installed(stranger: Path) -> None:
    python = stranger / "venv" / "bin" / "python"
    ran = subprocess.run(
        # A folder of its own: making one beside others' would close the folder above to the user whom PostgreSQL's server runs as.
        [python, "-m", "pytest", "-p", "no:cacheprovider", "--basetemp", stranger / "t", "tests"],
        cwd=stranger / "redis" / "source",
        env=_variables(stranger),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert " passed" in ran.stdout or "[100%]" in ran.stdout
    where = "import mzsql, mzsql_redis; print(mzsql.__file__, mzsql_redis.__file__)"
    found = subprocess.run(
        [python, "-c", where],
        cwd=stranger,
        env=_variables(stranger),
        capture_output=True,
        text=True,
        check=True,
    )
    assert all(str(stranger / "venv") in path for path in found.stdout.split())


@pytest.mark.long
def test_the_command_finds_it_and_tries_it(stranger: Path) -> None:
    python, command = (stranger / "venv" / "bin" / name for name in ("python", "mzsql"))
    variables = _variables(stranger)
    variables["PYTHONPATH"] = str(stranger / "redis" / "source" / "tests")
    ran = subprocess.run(
        [python, "-c", ON_A_SERVER, str(command)],
        cwd=stranger,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert "passed  consensus.killed_processes" in ran.stderr
    (found,) = [one for one in json.loads(ran.stdout)["plugins"] if one["name"] == "redis"]
    assert (found["distribution"], found["version"]) == ("mzsql-redis", "0.1.0")
    assert found["state"] == "loaded"
    passed = {(s["scheme"], s["kind"]) for s in found["kit"] if s["state"] == "passed"}
    assert passed == {("redis", kind) for kind in ("blob", "consensus", "oracle")}


def test_nothing_of_it_is_installed_for_development() -> None:
    """What the core does, it does without knowing the example."""
    code = "import importlib.metadata as m; print([d.name for d in m.distributions()])"
    listed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert "mzsql-redis" not in listed.stdout
