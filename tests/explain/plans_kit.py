"""Plans that are kept as texts: how a file of them is read, and how what is in force writes it anew.

A file begins with the statements that set the stage; then come records: ``-- what it shows``, a statement that EXPLAIN stands before,
``----`` and what it says. A record whose title begins with ``run:`` is only run.

    python tests/explain/plans_kit.py tests/explain/plans/names.txt

writes a file with what EXPLAIN says now; read the difference before you keep it.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import mzsql


class Kept(NamedTuple):
    """A record: what it shows, the statement after EXPLAIN, and what that says."""

    title: str
    statement: str
    plan: str


def read(path: Path) -> tuple[list[str], list[Kept]]:
    """The statements that set the stage, and the records."""
    setup, *rest = re.split(r"^-- (?=\S)", path.read_text(), flags=re.MULTILINE)
    return _statements(setup), list(_records(rest))


def _statements(text: str) -> list[str]:
    return [one for one in map(str.strip, re.split(r";\s*$", text, flags=re.MULTILINE)) if one]


def _records(entries: list[str]) -> Iterator[Kept]:
    for entry in entries:
        title, _, body = entry.partition("\n")
        statement, _, plan = body.partition("\n----\n")
        yield Kept(title.strip(), statement.strip(), plan.strip("\n"))


def staged(home: str, setup: list[str]) -> mzsql.Connection:
    """An environment in which the stage is set."""
    con = mzsql.connect(home)
    for statement in setup:
        con.execute(statement)
    return con


def said(con: mzsql.Connection, record: Kept) -> str:
    """What a record's statement says now; nothing of one that is only run."""
    if record.title.startswith("run:"):
        con.execute(record.statement)
        return ""
    ((text,),) = con.execute(f"EXPLAIN {record.statement}").fetchall()
    return str(text).strip("\n")


def _rewrite(path: Path) -> None:
    setup, records = read(path)
    with tempfile.TemporaryDirectory() as home, staged(home, setup) as con:
        parts = [path.read_text().partition("\n-- ")[0].rstrip() + "\n"]
        for record in records:
            shown = said(con, record)
            plan = f"\n----\n{shown}" if shown else ""
            parts.append(f"-- {record.title}\n{record.statement}{plan}\n")
    path.write_text("\n".join(parts))


if __name__ == "__main__":
    for name in sys.argv[1:]:
        _rewrite(Path(name))
