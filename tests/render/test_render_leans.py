"""Which lean text a step's template has for what its relations are: one that is right, soon, whichever of them have rows."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

import duckdb
import pyarrow as pa
import sqlglot

from mzsql.compute.replica.step.relation_facts import measured
from mzsql.expr.functions.table import Engine
from mzsql.render.kept import Kept
from mzsql.render.rendered import Step, StepOutput
from mzsql.render.rewrites.templates import LEANS, LeanText, StepTemplate

_NAMES = ("delta_a", "arr_b", "arr_c", "arr_d", "arr_e")
_FIELDS = [("c0", pa.int64()), ("mz_time", pa.int64()), ("mz_diff", pa.int64())]


def _branch(name: str) -> str:
    amount = "c0" if name == "delta_a" else f'd.c0 + "{name}".c0'
    origin = (
        '"delta_a"' if name == "delta_a" else f'"delta_a" AS d JOIN "{name}" ON d.c0 = {name}.c0'
    )
    owner = "" if name == "delta_a" else "d."
    return (
        f"SELECT CAST(0 AS INT) AS mz_tag, CAST({amount} + 1 AS BIGINT) AS c0, CAST(NULL AS TEXT) AS mz_error,"
        f" {owner}mz_time AS mz_time, {owner}mz_diff AS mz_diff FROM {origin}"
    )


_TEXT = " UNION ALL ".join(map(_branch, _NAMES))


def _template() -> StepTemplate:
    statement = sqlglot.parse_one(_TEXT, read="duckdb")
    step = Step(Kept(statement), (StepOutput(0, None, (), (0,)),), tuple(sorted(_NAMES)))
    return StepTemplate(step, (), Engine.DUCKDB)


def _relation(rng: random.Random, rows: int) -> pa.Table:
    columns = {
        "c0": [rng.randrange(1, 9) for _ in range(rows)],
        "mz_time": [5] * rows,
        "mz_diff": [1] * rows,
    }
    return pa.table(columns, schema=pa.schema(_FIELDS))


def _relations(rng: random.Random, filled: set[str]) -> dict[str, pa.Table]:
    return {name: _relation(rng, rng.randrange(1, 9) if name in filled else 0) for name in _NAMES}


def _lean(template: StepTemplate, tables: Mapping[str, pa.Table]) -> LeanText | None:
    def at_once(work: Callable[[], None]) -> None:
        work()

    asked = template.asked
    return template.lean({n: measured(t, asked.get(n, ())) for n, t in tables.items()}, at_once)


def _rows(text: str, tables: Mapping[str, pa.Table]) -> list[tuple[object, ...]]:
    connection = duckdb.connect()
    for name, table in tables.items():
        connection.register(name, table)
    return sorted(connection.execute(text).fetchall(), key=repr)


def _answers(made: LeanText, tables: Mapping[str, pa.Table]) -> bool:
    text = None if made.text is None else made.text.with_parameters
    assert not made.straight
    found = [] if text is None else _rows(text, {name: tables[name] for name in made.reads})
    return found == _rows(_TEXT, tables)


def test_one_text_does_for_all_sets_of_relations_that_had_rows() -> None:
    """Each relation has had rows once or twice, no two of them at the same time but for the updates."""
    rng, template = random.Random(3), _template()
    for name in _NAMES[1:] * 2:
        _lean(template, _relations(rng, {"delta_a", name}))
    for number in range(40):
        filled = {"delta_a", *(name for name in _NAMES[1:] if rng.random() < 0.5)}
        tables = _relations(rng, filled)
        made = _lean(template, tables)
        assert made is not None, (number, filled)
        assert _answers(made, tables)


def _general(rng: random.Random) -> tuple[StepTemplate, LeanText]:
    """A template that has a text for any relations."""
    template = _template()
    made = [_lean(template, _relations(rng, set(_NAMES))) for _ in range(5)][-1]
    assert made is not None
    assert made.filled == set(_NAMES)
    return template, made


def _uses_until_own(template: StepTemplate, general: LeanText, few: set[str]) -> int:
    """How often a set of relations comes until it has a text of its own, which is right and stays."""
    rng = random.Random(7)
    for number in range(40):
        tables = _relations(rng, few)
        made = _lean(template, tables)
        assert made is not None
        assert _answers(made, tables)
        if made is not general:
            assert made.filled == few
            assert made.length < general.length
            assert _lean(template, _relations(rng, few)) is made
            return number
    return 40


def test_a_set_has_a_text_of_its_own_the_sooner_the_shorter_that_is() -> None:
    template, general = _general(random.Random(4))
    assert _uses_until_own(template, general, {"delta_a", "arr_c"}) == 1
    uses = [
        _uses_until_own(*_general(random.Random(4)), {"delta_a", *_NAMES[1:number]})
        for number in range(2, len(_NAMES))
    ]
    assert uses == sorted(uses)
    assert 1 == uses[0] < uses[-1] < 10


def test_a_set_for_which_nothing_is_left_has_no_statement() -> None:
    template, general = _general(random.Random(6))
    assert _uses_until_own(template, general, {"arr_b", "arr_c"}) == 1
    made = _lean(template, _relations(random.Random(8), {"arr_b", "arr_c"}))
    assert made is not None
    assert made.text is None
    # Then nothing is left where fewer have rows, either.
    assert _lean(template, _relations(random.Random(8), {"arr_b"})) is made


def test_what_is_left_of_a_text_serves_fewer_relations_until_they_have_their_own() -> None:
    rng = random.Random(9)
    template, general = _general(rng)
    assert _uses_until_own(template, general, {"delta_a", "arr_b"}) == 1
    tables = _relations(rng, {"delta_a"})
    made = _lean(template, tables)
    assert made is not None
    assert made.filled == {"delta_a", "arr_b"}
    assert _answers(made, tables)


def test_a_text_of_its_own_is_made_anew_for_other_values() -> None:
    rng = random.Random(10)
    template, general = _general(rng)
    few = {"delta_a", "arr_b"}
    assert _uses_until_own(template, general, few) == 1
    large = {name: table.slice(0) for name, table in _relations(rng, few).items()}
    wide = pa.table([[10**8], [5], [1]], schema=pa.schema(_FIELDS))
    large["delta_a"] = wide
    assert _lean(template, large) is None
    found = [_lean(template, large) for _ in range(3)]
    assert all(one is not None and _answers(one, large) for one in found)
    assert found[-1] is not None
    assert found[-1].filled == few


def test_a_text_is_not_made_over_and_over() -> None:
    """More sets come by turns than there are texts kept."""
    rng, template = random.Random(11), _template()
    names = [f"arr_{number}" for number in range(LEANS + 8)]
    text = " UNION ALL ".join(
        f'SELECT CAST(0 AS INT) AS mz_tag, c0 AS c0, CAST(NULL AS TEXT) AS mz_error, mz_time AS mz_time, mz_diff AS mz_diff FROM "{name}"'
        " WHERE c0 > 3"
        for name in names
    )
    step = Step(
        Kept(sqlglot.parse_one(text, read="duckdb")),
        (StepOutput(0, None, (), (0,)),),
        tuple(sorted(names)),
    )
    template = StepTemplate(step, (), Engine.DUCKDB)

    def relations(filled: set[str]) -> dict[str, pa.Table]:
        return {name: _relation(rng, 5 if name in filled else 0) for name in names}

    made: list[LeanText] = []
    asked = template.asked

    def ask(filled: set[str]) -> None:
        tables = relations(filled)
        known = {n: measured(t, asked.get(n, ())) for n, t in tables.items()}
        template.lean(known, lambda work: work(), made.append)

    ask(set(names))
    for _ in range(3):
        for name in names:
            ask({name})
    assert len(made) == 1 + len(names)


def test_a_text_serves_on_when_one_is_made_for_more_relations() -> None:
    rng, template = random.Random(5), _template()
    few = {"delta_a", "arr_b"}
    first = [_lean(template, _relations(rng, few)) for _ in range(2)][-1]
    assert first is not None
    assert _lean(template, _relations(rng, {"delta_a", "arr_d"})) is None
    assert _lean(template, _relations(rng, few)) is first
    wider = _lean(template, _relations(rng, {"arr_d", *few}))
    assert wider is not None
    assert wider.filled == {"arr_d", *few}
