"""The statements of case f in a process of their own, of whichever checkout's mzsql: run by `other.py`, not by hand.

Reads lines of JSON, a name from `KINDS` and a number from which on no text of it has come yet; answers each with a line, the
milliseconds of processor time that this thread took for it. Knows of mzsql no more than `connect`, `execute` and `fetchall`, which
checkouts of long ago have as well.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import mzsql

_ROOT = Path(__file__).resolve().parents[2]
#: How often a statement that takes a millisecond runs for one figure.
_REPEATS = 40


def _explained(text: str, number: int) -> str:
    """EXPLAIN of a query as no text before: with a column more."""
    if text.startswith("WITH"):
        text = f"SELECT {number} AS tag, * FROM ({text}) AS x"
    else:
        text = text.replace("SELECT", f"SELECT {number} AS tag,", 1)
    return f"EXPLAIN PHYSICAL PLAN AS TEXT FOR {text}"


def kinds(queries: dict[str, str]) -> dict[str, Callable[[int], list[str]]]:
    """The texts of one figure, by its name."""
    found: dict[str, Callable[[int], list[str]]] = {
        name: lambda number, text=text: [_explained(text, number)]  # type: ignore[misc]
        for name, text in queries.items()
    }
    several: dict[str, Callable[[int], str]] = {
        "constant": lambda n: f"SELECT {n}",
        "constant expression": lambda n: f"SELECT {n} + 1, 'a' || '{n}'",
        "small read": lambda n: f"SELECT * FROM small WHERE k = {n}",
        "insert": lambda n: f"INSERT INTO small VALUES ({n}, 'x')",
    }
    for name, text in several.items():
        found[name] = lambda number, text=text: [  # type: ignore[misc]
            text(number * _REPEATS + one) for one in range(_REPEATS)
        ]
    return found


def main() -> None:
    schema, queries = (json.loads(sys.stdin.readline()) for _ in range(2))
    with tempfile.TemporaryDirectory(prefix="mzsql-bench-") as folder:
        connection = mzsql.connect(Path(folder) / "env")
        for statement in [*schema, "CREATE TABLE small (k bigint NOT NULL, v text)"]:
            connection.execute(statement)
        texts = kinds(queries)
        print(json.dumps([str(Path(mzsql.__file__).parents[1]), [*texts]]), flush=True)
        for line in sys.stdin:
            name, number = json.loads(line)
            asked = texts[name](number)
            begun = time.thread_time()
            for statement in asked:
                answer = connection.execute(statement)
                if not statement.startswith("INSERT"):
                    answer.fetchall()
            print(json.dumps((time.thread_time() - begun) * 1000 / len(asked)), flush=True)
        connection.close()


if __name__ == "__main__":
    main()
