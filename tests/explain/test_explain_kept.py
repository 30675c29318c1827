"""Plans of every stage and format, by class, are what they were: names, outer joins, what is known of columns, what stands where."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from plans_kit import Kept, read, said, staged

import mzsql

HERE = Path(__file__).parent / "plans"
FILES = sorted(HERE.glob("*.txt"))
RECORDS = [(path.stem, record) for path in FILES for record in read(path)[1]]


@pytest.fixture(scope="module")
def stage(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[[str], mzsql.Connection]]:
    """The environment of each file, made when it is first asked for."""
    made: dict[str, mzsql.Connection] = {}

    def of(name: str) -> mzsql.Connection:
        if name not in made:
            home = str(tmp_path_factory.mktemp(name))
            made[name] = staged(home, read(HERE / f"{name}.txt")[0])
        return made[name]

    yield of
    for con in made.values():
        con.close()


@pytest.mark.parametrize(
    ("name", "record"), RECORDS, ids=[f"{name}: {record.title}" for name, record in RECORDS]
)
def test_a_plan_is_as_it_was(
    stage: Callable[[str], mzsql.Connection], name: str, record: Kept
) -> None:
    assert said(stage(name), record) == record.plan


def test_records_are_found_once() -> None:
    titles = [(name, record.title) for name, record in RECORDS]
    assert len(titles) == len(set(titles)) > 200
