"""What the backends of production cost, against the bare statements and requests that they are made of, measured in turns in one run.

    python bench/backends                       # all cases, about fifteen minutes
    python bench/backends --quick               # a quick look, about four minutes
    python bench/backends --only a,b --json found.json

The servers are started for the run (PostgreSQL of the wheel `pgserver`, moto's S3), or named by --postgres-url and --s3-url, or by the
variables MZSQL_TEST_POSTGRES_URL and MZSQL_TEST_S3_URL. bench/README.md says what each case is. A line at the end of each says whether its
targets were met; the exit code says nothing about it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from tempfile import gettempdir
from typing import Any

if missing := [
    m for m in ("boto3", "moto", "pgserver", "psycopg", "mzsql_s3") if find_spec(m) is None
]:
    raise SystemExit(f"{', '.join(missing)} not installed: make bench-backends installs it")

_ROOT = Path(__file__).resolve().parents[2]
# The table of a case is that of bench/persist, and the servers are those of the plugins' tests.
sys.path += [
    str(_ROOT / folder)
    for folder in ("bench/persist", "plugins/mzsql-postgres/tests", "plugins/mzsql-s3/tests")
]

# Found only once the folders are known.
# isort: off
import command  # noqa: E402
import commits  # noqa: E402
import objects  # noqa: E402
import servers  # noqa: E402
import statements  # noqa: E402
from figures import Case, machine, run_cases, scratch, shown  # noqa: E402

from mzsql.location import shown_url  # noqa: E402
# isort: on

LETTERS = "abcde"


def main() -> None:
    parser = command.parser(__doc__, LETTERS, quick="few repeats: only a look")
    parser.add_argument("--postgres-url", default=os.environ.get("MZSQL_TEST_POSTGRES_URL"))
    parser.add_argument("--s3-url", default=os.environ.get("MZSQL_TEST_S3_URL"))
    given = parser.parse_args()
    found = run(given.only, given.postgres_url, given.s3_url, quick=given.quick)
    command.keep(found, given)


def run(letters: list[str], postgres: str | None, s3: str | None, *, quick: bool) -> dict[str, Any]:
    """Measure and print; everything for JSON."""
    with ExitStack() as stack:
        folder = stack.enter_context(scratch(Path(gettempdir())))
        about: dict[str, Any] = machine(folder)
        postgres_url = stack.enter_context(servers.postgres(postgres))
        s3_url = stack.enter_context(servers.s3(s3))
        about["postgres"] = shown_url(postgres_url) if postgres else "started, fsync on"
        about["s3"] = shown_url(s3_url) if s3 else "moto, in a process of its own"
        print("; ".join(f"{name} {shown(value)}" for name, value in about.items()))
        cases: dict[str, Callable[[], Case]] = {
            "a": lambda: statements.consensus(postgres_url, quick=quick),
            "b": lambda: statements.oracle(postgres_url, quick=quick),
            "c": lambda: objects.objects(s3_url, quick=quick),
            "d": lambda: commits.costs(s3_url, postgres_url, folder, quick=quick),
            "e": lambda: commits.wakes(postgres_url, folder, quick=quick),
        }
        done = run_cases(letters, cases)
    return {"machine": about, "quick": quick, "cases": done}


if __name__ == "__main__":
    main()
