"""What timestamps cost: oracles against the same callers each sending the design's statements through a pool, in turns in one run.

    python bench/oracle                         # all cases, about seven minutes each
    python bench/oracle --quick                 # a quick look, about two minutes
    python bench/oracle --only a --callers 512 --json found.json

PostgreSQL is started for the run (the server of the wheel `pgserver`, fsync on), or named by --postgres-url or the variable
MZSQL_TEST_POSTGRES_URL. bench/README.md says what each case is. A line at the end of each says whether its targets were met; the exit code
says nothing about it.
"""

from __future__ import annotations

import gc
import os
import sys
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from tempfile import gettempdir
from time import perf_counter
from typing import Any

if missing := [
    m for m in ("pgserver", "psycopg", "psycopg_pool", "mzsql_s3") if find_spec(m) is None
]:
    raise SystemExit(f"{', '.join(missing)} not installed: make bench-oracle installs it")

_ROOT = Path(__file__).resolve().parents[2]
# The table of a case is that of bench/persist, the servers those of bench/backends and of the plugins' tests.
sys.path += [
    str(_ROOT / folder)
    for folder in (
        "bench/persist",
        "bench/backends",
        "plugins/mzsql-postgres/tests",
        "plugins/mzsql-s3/tests",
    )
]

# Found only once the folders are known.
# isort: off
import command  # noqa: E402
import servers  # noqa: E402
from callers import case  # noqa: E402
from contenders import contenders  # noqa: E402
from figures import machine, scratch, shown, tell_targets  # noqa: E402

from mzsql.location import shown_url  # noqa: E402
# isort: on

KINDS = {"a": "read", "b": "write", "c": "mixed"}
CALLERS = "1,8,64,512"


def main() -> None:
    parser = command.parser(__doc__, "".join(KINDS), quick="short windows: only a look")
    parser.add_argument("--callers", default=CALLERS)
    parser.add_argument("--postgres-url", default=os.environ.get("MZSQL_TEST_POSTGRES_URL"))
    parser.add_argument(
        "--directory", type=Path, default=Path(gettempdir()), help="of the disk to be measured"
    )
    given = parser.parse_args()
    many = sorted(int(number) for number in given.callers.split(","))
    found = run(given.only, many, given.postgres_url, given.directory.absolute(), quick=given.quick)
    command.keep(found, given)


def run(
    letters: list[str], many: list[int], postgres: str | None, directory: Path, *, quick: bool
) -> dict[str, Any]:
    """Measure and print; everything for JSON."""
    seconds, rounds = (0.5, 2) if quick else (2.0, 5)
    with ExitStack() as stack:
        folder = stack.enter_context(scratch(directory))
        about: dict[str, Any] = machine(folder)
        url = stack.enter_context(servers.postgres(postgres))
        about["postgres"] = shown_url(url) if postgres else "started, fsync on"
        print("; ".join(f"{name} {shown(value)}" for name, value in about.items()))
        mine = stack.enter_context(servers.schema(url))
        done = []
        for letter in letters:
            gc.collect()
            begun = perf_counter()
            openers = contenders(mine, folder)
            one = case(letter, KINDS[letter], openers, many, seconds=seconds, rounds=rounds)
            one.show()
            done.append({**one.data(), "took_seconds": perf_counter() - begun})
    tell_targets(done)
    return {"machine": about, "quick": quick, "cases": done}


if __name__ == "__main__":
    main()
