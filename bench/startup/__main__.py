"""What it takes to open an environment of very many views: until the first answer, until all dataflows are taken up, and what that costs.

    python bench/startup                                  # 10, 100, 1,000 and 10,000 views
    python bench/startup --views 100,1000 --rounds 5 --json found.json
    python bench/startup --views 1000 --only a --directory /path/on/the/disk

Each environment is made once; every opening is a process of its own. bench/README.md says what each case is. A line at the end of each says
whether its targets were met; the exit code says nothing about it.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import gettempdir
from typing import Any

_ROOT = Path(__file__).resolve().parents[2]
# The table of a case is that of bench/persist.
sys.path += [str(_ROOT / "bench/persist")]

# Found only once the folder is known.
# isort: off
import command  # noqa: E402
from figures import Case, machine, median, run_cases, scratch, shown  # noqa: E402
# isort: on

LETTERS = "abcd"
#: A process that opens, or makes, an environment is given up after so many seconds.
_PATIENCE = 3600.0

_GREATEST = 10_000
_SMALLEST = 100
#: About as many as a demonstration has.
_DEMO = 10


def main() -> None:
    parser = command.parser(__doc__, LETTERS)
    parser.add_argument("--views", type=_numbers, default=[_DEMO, _SMALLEST, 1_000, _GREATEST])
    parser.add_argument("--rounds", type=int, default=3, help="warm openings of each environment")
    parser.add_argument("--directory", type=Path, default=Path(gettempdir()))
    parser.add_argument("--keep", type=Path, help="make environments here, or find them here")
    given = parser.parse_args()
    found = run(given.only, given.views, given.rounds, given.directory, given.keep)
    command.keep(found, given)


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def run(
    letters: list[str], views: list[int], rounds: int, directory: Path, keep: Path | None
) -> dict[str, Any]:
    """Measure and print; everything for JSON."""
    with scratch(directory) as folder:
        about: dict[str, Any] = machine(folder)
        print("; ".join(f"{name} {shown(value)}" for name, value in about.items()))
        environments = {n: made(folder if keep is None else keep, n) for n in views}
        cases: dict[str, Callable[[], Case]] = {
            "a": lambda: openings(environments, rounds),
            "b": lambda: cold(environments),
            "c": lambda: counts(environments),
            "d": lambda: promotions(environments),
        }
        done = run_cases(letters, cases)
    return {"machine": about, "views": views, "cases": done}


def child(what: str, *arguments: object) -> dict[str, Any]:
    """What a process of its own found."""
    here = Path(__file__).parent / "children.py"
    done = subprocess.run(
        [sys.executable, str(here), what, *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=_PATIENCE,
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def made(folder: Path, views: int) -> Path:
    """An environment of so many views."""
    folder.mkdir(parents=True, exist_ok=True)
    env = folder / f"views-{views}"
    if not (folder / f"views-{views}.made").exists():
        found = child("make", env, views)
        print(f"{views:,} views made in {found['seconds']:.0f} s, {found['hydrated']:,} hydrated")
        (folder / f"views-{views}.made").touch()
    return env


def opened(env: Path, views: int) -> dict[str, Any]:
    """What opening a copy took: what it goes on to hydrate is not there the next time."""
    with scratch(env.parent) as folder:
        copy = folder / "env"
        shutil.copytree(env, copy)
        return child("open", copy, views)


def openings(environments: dict[int, Path], rounds: int) -> Case:
    """Warm: every plan is in the cache."""
    case = Case("a", "opening with all plans in the expression cache, leading")
    took: dict[int, float] = {}
    for views, env in environments.items():
        child("fill", env, views)  # Plans that this build does not have yet.
        found = [opened(env, views) for _ in range(rounds)]
        middle = {name: median([one[name] for one in found]) for name in found[0]}
        took[views] = middle["taken_up"]
        case.row(views=views, **middle)
        if views == _DEMO:
            case.target("10 views: s until connect() returns", middle["connected"], most=0.1)
        if views == _GREATEST:
            case.target("10,000 views: s to SELECT 1", middle["first_answer"], most=2.0)
            case.target("10,000 views: s to all taken up", middle["taken_up"], most=6.0)
            case.target("10,000 views: MB", middle["MB"], most=1000.0)
            case.target("10,000 views: s of optimization", middle["optimizing"], most=1.0)
    took.pop(_DEMO, None)  # what any opening takes is most of that
    if len(took) > 1:
        least, greatest = min(took), max(took)
        growth = took[greatest] / took[least] / (greatest / least)
        case.target("growth of the time over that of the views", growth, most=1.2)
    return case


def cold(environments: dict[int, Path]) -> Case:
    """No plan is in the cache."""
    case = Case("b", "opening with no plan in the expression cache, leading")
    for views, env in environments.items():
        child("fill", env, views)
        warm = opened(env, views)
        child("forget", env)
        found = opened(env, views)
        case.row(views=views, **found, warm_optimizing=warm["optimizing"])
        share = warm["optimizing"] / found["optimizing"]
        if views != _DEMO:
            case.target(f"{views:,} views: warm over cold optimization", share, most=1 / 50)
    return case


def counts(environments: dict[int, Path]) -> Case:
    """The first count of each relation of the system's."""
    case = Case("c", "the first count(*) of each builtin relation, not leading")
    for views, env in environments.items():
        child("fill", env, views)
        found = child("counts", env)
        slowest = sorted(found["seconds"].items(), key=lambda one: -one[1])
        for relation, seconds in slowest[:5]:
            case.row(views=views, relation=relation, seconds=seconds, CPU=found["CPU"][relation])
        case.target(f"{views:,} views: the slowest, s", slowest[0][1], most=0.3)
    return case


def promotions(environments: dict[int, Path]) -> Case:
    """One process leads and reads, another one waits beside it and is promoted."""
    case = Case("d", "promotion of a generation that is caught up, seconds after the call")
    here = Path(__file__).parent / "children.py"
    for views, env in environments.items():
        child("fill", env, views)
        with scratch(env.parent) as folder:
            copy = folder / "env"
            shutil.copytree(env, copy)
            leading = subprocess.Popen(
                [sys.executable, str(here), "lead", str(copy)], stdout=subprocess.PIPE, text=True
            )
            assert leading.stdout is not None
            assert leading.stdout.readline() == "ready\n"
            found = child("promote", copy)
            said, _ = leading.communicate(timeout=_PATIENCE)
        old = json.loads(said.splitlines()[-1])
        case.row(views=views, **found, reads_by_the_old=old["reads"])
        case.target(f"{views:,} views: s to the first write", found["first_write"], most=2.0)
        if "fenced by" not in old["ended"]:
            raise AssertionError(f"the old one ended otherwise: {old['ended']}")
    return case


if __name__ == "__main__":
    main()
