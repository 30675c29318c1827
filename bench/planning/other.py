"""Another checkout of mzsql that takes turns with this one, statement by statement, each in a process of its own."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from figures import Case, median, rounds
from warehouse import tpch_queries, tpch_schema

ROOT = Path(__file__).resolve().parents[2]


class Checkout:
    """A process that runs statements with the mzsql of a checkout, by the interpreter of its ``.venv`` where it has one."""

    def __init__(self, root: Path) -> None:
        root = root.resolve()
        python = root / ".venv" / "bin" / "python"
        self._process = subprocess.Popen(
            [
                str(python if python.exists() else sys.executable),
                str(Path(__file__).with_name("statements.py")),
            ],
            env={**os.environ, "PYTHONPATH": str(root)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        schema = [one.strip() for one in tpch_schema().split(";") if one.strip()]
        self._send(schema)
        found, self.kinds = self.ask(tpch_queries())
        assert Path(found) == root, f"{found} is not {root}"

    def _send(self, what: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()

    def ask(self, what: object) -> Any:
        """What the process answers."""
        self._send(what)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"the other process ended with {self._process.wait()}")
        return json.loads(line)

    def close(self) -> None:
        self._process.communicate()


@contextmanager
def _started(*roots: Path) -> Iterator[list[Checkout]]:
    with ExitStack() as open_ones:
        yield [open_ones.enter_context(closing(Checkout(root))) for root in roots]


def beside(other: Path, *, quick: bool) -> Case:
    """Statements of texts that are new each time, in this checkout and in another."""
    case = Case("f", f"statements beside those of {other.name or other}, ms of processor time")
    number, warm, ratios = 1 if quick else 15, 1 if quick else 3, []
    # The process that is started first takes some hundredths more than one of the same code started later, for as long as it lives: it is
    # not asked.
    with _started(ROOT, ROOT, other) as (_, ours, theirs):
        for name in ours.kinds:
            count = iter(range(1, 1 << 30))

            def asked(who: Checkout, name: str = name, count: Iterator[int] = count) -> float:
                return float(who.ask([name, next(count)]))

            found = rounds(
                number, {"ours": lambda: asked(ours), "theirs": lambda: asked(theirs)}, warm=warm
            )
            mine, other_s = median(found["ours"]), median(found["theirs"])
            if name in tpch_queries():
                ratios.append(mine / other_s)
            case.row(statement=name, mzsql=mine, other=other_s, ratio=mine / other_s)
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    case.notes.append(f"geometric mean of the ratios of TPC-H's queries: {mean:.3f}")
    return case
