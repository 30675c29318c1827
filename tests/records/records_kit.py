"""Records of expressions and of queries with PostgreSQL's answers, as files.

A file of `expressions` holds a class of them, one a line: the expression, a tab, and the text of its value as PostgreSQL has it:
``\\N`` for NULL, ``ERROR`` where it fails. Lines of `queries` are queries over `tables.sql`; an answer is a JSON list of its rows' texts,
sorted. `differs.txt` lists what mzsql answers otherwise: the record, mzsql's answer, and why. Run as a program, this asks
PostgreSQL for all answers anew; a line without an answer is how a record is added::

    PYTHONPATH=plugins/mzsql-postgres/tests:tests python tests/records/records_kit.py
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
EXPRESSIONS = sorted((HERE / "expressions").glob("*.txt"))
QUERIES = sorted((HERE / "queries").glob("*.txt"))
DIFFERS = HERE / "differs.txt"
#: The answer of what fails; each side has its own words.
FAILED = "ERROR"


@dataclass(frozen=True)
class Record:
    """A text and the answer to it, empty where there is none yet."""

    text: str
    answer: str


def read(path: Path) -> Iterator[Record]:
    """The records of a file."""
    for line in path.read_text().splitlines():
        text, _, answer = line.partition("\t")
        if text:
            yield Record(text, answer)


def differing() -> dict[str, str]:
    """What mzsql answers to the records of `DIFFERS`."""
    lines = (line.split("\t") for line in DIFFERS.read_text().splitlines() if line)
    return {text: ours for text, ours, _reason in lines}


def tables() -> list[str]:
    """The statements that make what the queries are over."""
    texts = (HERE / "tables.sql").read_text().split(";\n")
    return [text.strip() for text in texts if text.strip()]


def shown(value: Any) -> str:
    """A value's text on one line."""
    if value is None:
        return r"\N"
    text = str(value).replace("\\", "\\\\")
    return text.replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")


def rows_shown(rows: list[tuple[Any, ...]]) -> str:
    """The texts of rows of one column, in their order as texts."""
    return json.dumps(sorted(shown(row[0]) for row in rows), ensure_ascii=False)


def of_record(query: str) -> str:
    """The query whose rows are those of a query, each as the text of a record."""
    return f"SELECT q::text FROM ({query}) AS q"


def as_here(value: str | None, kind: str) -> str | None:
    """PostgreSQL's text of a value as mzsql writes it: documents without blanks, numbers without zeros at the end, whole words."""
    if value is None:
        return None
    match kind:
        case "json" | "jsonb":
            return re.sub(r'("(?:[^"\\]|\\.)*")|\s+', lambda m: m[1] or "", value)
        case "numeric" if "." in value:
            return value.rstrip("0").rstrip(".")
        case "interval":
            return re.sub(r"\bmon(s?)\b", r"month\1", value)
        case _:
            return value


def _of_expression(session: Any, expression: str) -> str:
    text = f"SELECT ({expression})::text, pg_typeof({expression})::text"
    value, kind = session.execute(text.encode()).fetchone()
    return shown(as_here(value, kind))


def _of_query(session: Any, query: str) -> str:
    return rows_shown(session.execute(of_record(query).encode()).fetchall())


def _answer_all(session: Any, path: Path, answer: Callable[[Any, str], str]) -> None:
    import psycopg

    lines = []
    for record in read(path):
        try:
            found = answer(session, record.text)
        except psycopg.Error:
            found = FAILED
        lines.append(f"{record.text}\t{found}\n")
    path.write_text("".join(lines))


def _main() -> None:
    from answers_kit import make_database
    from postgres_server import PostgresServer

    with PostgresServer() as server, make_database(server, "records") as session:
        for statement in tables():
            session.execute(statement.encode())
        for path in EXPRESSIONS:
            _answer_all(session, path, _of_expression)
        for path in QUERIES:
            _answer_all(session, path, _of_query)


if __name__ == "__main__":
    _main()
