"""What `catalog/columns.json` tells of builtin views is what planning them gives, and nothing is told of one whose text has changed."""

from __future__ import annotations

from pathlib import Path

import pytest

import mzsql
from mzsql.adapter.planning.builtin_columns import described_now, written
from mzsql.adapter.planning.descriptions import Descriptions
from mzsql.catalog import described as kept
from mzsql.catalog.builtin import builtins
from mzsql.catalog.described import Described, described, fingerprints
from mzsql.frontend import hir

#: The command to be run where the first of these tests fails.
COMMAND = "python -m mzsql.adapter.planning.builtin_columns"


@pytest.fixture(scope="module")
def planned() -> dict[str, Described]:
    return described_now()


def test_what_is_told_is_what_planning_gives(planned: dict[str, Described]) -> None:
    views = [one for one in builtins().values() if one.kind == "view"]
    told = {one.full_name: found for one in views if (found := described(one)) is not None}
    wrong = [name for name, desc in told.items() if desc != planned[name].desc]
    assert not wrong, COMMAND
    assert told.keys() == planned.keys() == {one.full_name for one in views}, COMMAND


def test_the_file_says_the_same_when_it_is_written_again(planned: dict[str, Described]) -> None:
    again = kept.read(written(planned).encode())
    assert again == planned


def test_a_text_that_has_changed_changes_all_that_is_above_it() -> None:
    texts = {name: f"CREATE VIEW {name}" for name in ("a", "b", "c", "d", "apart")}
    reads = {"b": ("a",), "c": ("b", "apart"), "d": ("b",)}
    before = fingerprints(texts, reads)
    assert len(set(before.values())) == len(texts)
    after = fingerprints({**texts, "b": "CREATE VIEW b AS SELECT 1"}, reads)
    assert {name for name in texts if before[name] != after[name]} == {"b", "c", "d"}
    gone = fingerprints({name: text for name, text in texts.items() if name != "a"}, reads)
    assert {name for name in "bcd" if before[name] != gone[name]} == {"b", "c", "d"}
    assert gone["apart"] == before["apart"]
    assert fingerprints(texts, {**reads, "d": ("a",)})["d"] != before["d"]


def test_columns_of_all_relations_are_told_without_planning_views(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned: list[str] = []
    query = Descriptions.query

    def noted(self: Descriptions, text: str) -> hir.Query:
        planned.append(text)
        return query(self, text)

    monkeypatch.setattr(Descriptions, "query", noted)
    with mzsql.connect(tmp_path / "env") as con:
        found = con.execute("SELECT count(*) FROM mz_columns WHERE id LIKE 's%'").fetchall()
    views = [one for one in builtins().values() if one.kind == "view"]
    assert found[0][0] > 5 * len(views)
    assert planned == []
