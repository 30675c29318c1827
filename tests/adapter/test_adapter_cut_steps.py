"""Steps over several times whose text is not planned: one time after the other, until it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from step_kit import Stepper

from mzsql.adapter.coordinator import Coordinator
from mzsql.adapter.environment.arrangement_registry import CatalogArrangements
from mzsql.adapter.environment.environment import Environment
from mzsql.adapter.environment.locations import locate
from mzsql.adapter.session.session import Session
from mzsql.catalog.objects import MaterializedView
from mzsql.compute.replica.step.cutting import MOST_TIMES
from mzsql.compute.replica.step.preparing import prepare_steps

QUERY = "SELECT a.g, count(*) AS n, sum(b.v) AS s FROM a JOIN b ON b.g = a.g GROUP BY a.g"


class World:
    """A view over two tables, whose steps run when they are told to."""

    def __init__(self, place: Path) -> None:
        self.session = Session()
        self.env = Environment.open(locate(str(place)))
        self.coordinator = Coordinator(self.env, spark=None)
        self.later: list[Callable[[], None]] = []
        self.run("CREATE TABLE a (g int, v int); CREATE TABLE b (g int, v int)")
        self.run("INSERT INTO a VALUES (1, 1), (2, 2); INSERT INTO b VALUES (1, 10), (2, 20)")
        self.run(f"CREATE MATERIALIZED VIEW w AS {QUERY}")
        (item,) = self.env.sync().of(MaterializedView)
        self.stepper = Stepper(
            self.env.persist,
            self.env.collections,
            CatalogArrangements(self.env.catalog),
            self.coordinator.planner.deploy(item).plan,
            output_shard=item.shard,
            as_of=item.as_of,
        )

    def run(self, text: str) -> list[str]:
        *_, last = self.coordinator.execute(self.session, text)
        return [] if last.rows is None else sorted(map(str, last.rows.to_pylist()))

    def prepare(self) -> None:
        """Plan what a tick's step needs."""
        one = self.stepper
        prepare_steps(one.dataflow, one.driver, one.deltas, lambda: False, several=False)

    def ticks(self, number: int) -> int:
        """So many transactions; where the step over all of them ends."""
        for _ in range(number):
            self.run("INSERT INTO b VALUES (1, 1), (2, 2)")
        return self.env.fresh_timestamp() + 1

    def steps(self, upper: int) -> list[int]:
        """Step until everything is done; how many rows each step had."""
        found = []
        while self.stepper.dataflow.lower() < upper:
            found.append(self.stepper.step(upper, may_cut=True, later=self.later.append).rows_in)
        return found

    def close(self) -> None:
        self.stepper.close()
        self.coordinator.close()
        self.env.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path / "env")
    yield made
    made.close()


def test_a_step_is_cut_until_its_text_is_planned(world: World) -> None:
    # Nothing is planned: one text is as good as the other.
    assert world.steps(world.ticks(3)) == [6]
    world.prepare()
    assert world.steps(world.ticks(3)) == [2, 2, 2]
    for work in world.later:
        work()
    assert world.steps(world.ticks(3)) == [6]
    assert world.run("SELECT * FROM w") == world.run(QUERY)


def test_many_times_are_not_taken_apart(world: World) -> None:
    world.prepare()
    assert world.steps(world.ticks(MOST_TIMES + 1)) == [2 * (MOST_TIMES + 1)]
    assert world.steps(world.ticks(MOST_TIMES)) == [2] * MOST_TIMES
    assert world.run("SELECT * FROM w") == world.run(QUERY)
