"""The judge of `bench/refresh` lets no wrong view pass, and no right one fail for the digits that DuckDB computes in binary."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

BENCH = Path(__file__).parents[2] / "bench" / "refresh"
QUERY = "SELECT k, sum(v) AS s, avg(v) AS a FROM t GROUP BY k"
RIGHT = [("x", "3.00", "1.5"), ("y", "2.00", "0.666666666666666667"), (None, "5.00", "5")]


@pytest.fixture
def judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A judge with one table of six rows, one of which a statement has brought."""
    monkeypatch.syspath_prepend(str(BENCH))
    from judge import Judge

    rows = [("x", "1"), ("x", "2"), ("y", "1"), ("y", "1"), ("y", "0")]
    table = pa.table(
        {
            "k": [k for k, _ in rows],
            "v": pa.array([Decimal(v) for _, v in rows], pa.decimal128(15, 2)),
        }
    )
    pq.write_table(table, tmp_path / "t.parquet")
    with closing(Judge(tmp_path / "judge.duckdb")) as made:
        made.load(tmp_path, ["t"])
        made.run(["INSERT INTO t VALUES (NULL, 5.00)"])
        yield made


def view(rows: list[tuple[str | None, str | None, str]]) -> pa.Table:
    """A view's contents, of the types that a session gives."""
    keys, sums, averages = zip(*rows, strict=True)
    return pa.table(
        {
            "k": pa.array(keys, pa.string()),
            "s": pa.array([None if s is None else Decimal(s) for s in sums], pa.decimal128(38, 2)),
            "a": pa.array([Decimal(a) for a in averages], pa.decimal128(38, 18)),
        }
    )


def test_the_same_bag_passes_in_any_order(judge: Any) -> None:
    judge.check("t", QUERY, view(RIGHT))
    judge.check("t", QUERY, view(RIGHT[::-1]))


@pytest.mark.parametrize(
    "wrong",
    [
        RIGHT[:2],
        [*RIGHT, RIGHT[0]],
        [("x", "3.01", "1.5"), *RIGHT[1:]],
        [("x", "3.00", "1.50000001"), *RIGHT[1:]],
        [("z", "3.00", "1.5"), *RIGHT[1:]],
        [("x", None, "1.5"), *RIGHT[1:]],
        [*RIGHT[:2], ("", "5.00", "5")],
    ],
    ids=["missing", "twice", "exact", "binary", "text", "null", "no null"],
)
def test_a_wrong_row_does_not(judge: Any, wrong: list[tuple[str | None, str | None, str]]) -> None:
    from judge import WrongAnswer

    with pytest.raises(WrongAnswer, match=r"^t: "):
        judge.check("t", QUERY, view(wrong))
