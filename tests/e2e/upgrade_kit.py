"""Two programs of different versions, each a built wheel in a virtual environment of its own, for the tests of upgrades."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

ROOT = Path(__file__).parents[2]


def install(
    home: Path,
    version: str,
    *,
    arrangement_format: str | None = None,
    catalog_step: str | None = None,
) -> Path:
    """The directory of the commands of mzsql as ``version``, installed in ``home``; what it depends on is borrowed from this environment.

    Args:
        home: a new directory.
        version: of the program.
        arrangement_format: of its arrangements, where that is another than now.
        catalog_step: the step to its catalog's format, where that is one further than now: the body of a function of the entries.
    """
    source = home / "source"
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    for name in listed:
        if (ROOT / name).is_file() and not name.startswith(("tests/", "bench/", "plugins/")):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, source / name)
    _put(source / "mzsql/repr/version.py", "VERSION", version)
    if arrangement_format is not None:
        _put(source / "mzsql/render/nodes/naming.py", "ARRANGEMENT_FORMAT", arrangement_format)
    if catalog_step is not None:
        _add_step(source / "mzsql/catalog", catalog_step)
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--outdir", str(home), str(source)],
        check=True,
        capture_output=True,
    )
    (wheel,) = home.glob("*.whl")
    shutil.rmtree(source)
    venv.create(home / "venv", with_pip=True)
    commands = home / "venv" / "bin"
    python = commands / "python"
    subprocess.run(
        [python, "-m", "pip", "install", "-q", "--no-deps", "--no-index", str(wheel)],
        check=True,
        capture_output=True,
    )
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    own = subprocess.run([python, "-c", where], capture_output=True, text=True, check=True)
    borrowed = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (Path(own.stdout.strip()) / "borrowed.pth").write_text("\n".join(sorted(borrowed)) + "\n")
    said = subprocess.run(
        [commands / "mzsql", "--version"],
        capture_output=True,
        text=True,
        check=True,
        env=variables(),
    )
    assert version in said.stdout, said.stdout
    return commands


def _add_step(catalog: Path, body: str) -> None:
    """Have the catalog be of the format after the present one."""
    durable, steps = catalog / "durable.py", catalog / "migrations.py"
    (now,) = re.findall(r"^FORMAT_VERSION = (\d+)$", durable.read_text(), flags=re.M)
    text = durable.read_text().replace(
        f"FORMAT_VERSION = {now}", f"FORMAT_VERSION = {int(now) + 1}"
    )
    durable.write_text(text)
    with steps.open("a") as file:
        file.write(
            f"\n\ndef _step(entries: Entries) -> Change:\n    {body}\n\n\nSTEPS[{now}] = _step\n"
        )


def _put(file: Path, name: str, value: str) -> None:
    text, count = re.subn(
        rf'^{name} = "[^"]*"$', f'{name} = "{value}"', file.read_text(), flags=re.M
    )
    assert count == 1, f"{name} is not in {file}"
    file.write_text(text)


def variables() -> dict[str, str]:
    """The environment's variables for such a program: nothing of this one leads to the tree."""
    dropped = ("PYTHONPATH", "VIRTUAL_ENV", "COVERAGE_PROCESS_START")
    return {name: value for name, value in os.environ.items() if name not in dropped}


def deploy(commands: Path, *arguments: str) -> tuple[int, str]:
    """``mzsql deploy …`` by a program: exit code, and what it has printed to either stream."""
    done = subprocess.run(
        [commands / "mzsql", "deploy", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=variables(),
        timeout=500,
    )
    return done.returncode, done.stdout + done.stderr


def sql(commands: Path, env: str, text: str) -> str:
    """What ``mzsql sql`` of a program prints."""
    done = subprocess.run(
        [commands / "mzsql", "sql", "--env", env, text],
        capture_output=True,
        text=True,
        check=True,
        env=variables(),
        timeout=500,
    )
    return done.stdout
