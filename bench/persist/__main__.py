"""What shards cost, against what else there is for the same rows on the same machine, measured in turns in one run.

    python bench/persist                        # TPC-H scale 1, all cases, about twelve minutes
    python bench/persist --scale 0.1            # a quick look
    python bench/persist --only a,c --json found.json

Medians over repeats; whoever is compared takes turns at going first; everything is on the disk under --directory. bench/README.md says
what each case is. A line at the end of each says whether its targets were met; the exit code says nothing about it.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import gettempdir
from time import perf_counter
from typing import Any

import command
import large
import lineitem
from figures import Case, machine, scratch, shown, tell_targets

from mzsql.cli.demo import generator

#: Cases that set us beside the other stores, which have to be installed for them alone.
_COMPARED = set("cdefh")


def main() -> None:
    parser = command.parser(__doc__, "abcdefghi")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument(
        "--directory",
        type=Path,
        default=Path(gettempdir()),
        help="a directory of the disk to be measured",
    )
    parser.add_argument(
        "--lineitem", type=Path, help="lineitem at --scale, where it is already there as Parquet"
    )
    given = parser.parse_args()
    needed = ("deltalake", "pyiceberg", "sqlalchemy") if _COMPARED & set(given.only) else ()
    if missing := [m for m in needed if find_spec(m) is None]:
        raise SystemExit(
            f"{', '.join(missing)} not installed: pip install -e '.[bench]', or make bench-persist"
        )
    with scratch(given.directory.absolute()) as directory:
        found = run(given.only, given.scale, directory, given.lineitem)
    command.keep(found, given)


def generate(folder: Path, scale: float) -> Path:
    """Lineitem as a Parquet file."""
    command = [generator(), "parquet", "-s", f"{scale:g}", "--tables", "lineitem", "-q"]
    subprocess.run([*command, "--no-progress", "-o", str(folder)], check=True)
    return folder / "lineitem.parquet"


def run(letters: list[str], scale: float, directory: Path, file: Path | None) -> dict[str, Any]:
    """Measure and print; everything for JSON."""
    about = machine(directory)
    print(
        "; ".join(f"{name} {shown(value)}" for name, value in about.items()) + f"; scale {scale:g}"
    )
    source = file or generate(directory, scale)
    rows = lineitem.load(source)
    # Fewer commits and seconds where only a look is wanted.
    few = scale < 1
    small = import_module("small") if _COMPARED & set(letters) else None
    cases: dict[str, Callable[[], Case]] = {
        "a": lambda: large.append(rows, directory, 5),
        "b": lambda: large.spark(rows, directory, 7),
        "c": lambda: small.commits(rows, source, directory, 200),
        "d": lambda: small.flat(rows, directory),
        "e": lambda: small.listeners(rows, directory, 500),
        "f": lambda: small.writers(rows, source, directory, 3 if few else 8),
        "g": lambda: large.memory(source, directory),
        "h": lambda: small.reads(rows, directory, 400, 7),
        "i": lambda: large.growth(rows, scale, directory, 3),
    }
    done = []
    for letter in letters:
        begun = perf_counter()
        case = cases[letter]()
        case.show()
        done.append({**case.data(), "took_seconds": perf_counter() - begun})
    tell_targets(done)
    return {"machine": about, "scale": scale, "rows": rows.num_rows, "cases": done}


if __name__ == "__main__":
    main()
