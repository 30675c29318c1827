"""What may be opened as an environment, and what is refused untouched."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mzsql.adapter.environment import Environment
from mzsql.adapter.locations import MARKER, locate
from mzsql.repr.errors import EnvironmentRefused, InvalidParameter


def tree(path: Path) -> dict[str, bytes]:
    return {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file()}


def test_a_missing_and_an_empty_directory_become_environments(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    for path in (tmp_path / "a" / "b", empty):
        env = Environment.open(locate(path))
        first = env.id
        env.close()
        again = Environment.open(locate(str(path)))
        assert again.id == first == json.loads((path / MARKER).read_text())["environment_id"]
        again.close()


def test_a_directory_with_other_things_is_refused_untouched(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    before = tree(tmp_path)
    with pytest.raises(EnvironmentRefused, match="is not an mzsql environment: it is not empty"):
        locate(tmp_path)
    assert tree(tmp_path) == before


def test_a_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_text("1")
    with pytest.raises(EnvironmentRefused, match="is not a directory"):
        locate(file)


@pytest.mark.parametrize("where", ["marker", "catalog"])
def test_a_newer_format_is_refused_untouched(
    tmp_path: Path, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    env_path = tmp_path / "env"
    with monkeypatch.context() as newer:
        newer.setattr("mzsql.adapter.catalog.FORMAT_VERSION", 2)
        if where == "marker":
            newer.setattr("mzsql.adapter.locations.FORMAT_VERSION", 2)
        Environment.open(locate(env_path)).close()
    before = tree(env_path / "blob")
    marker = (env_path / MARKER).read_bytes()
    with pytest.raises(EnvironmentRefused, match="was written by a newer mzsql: its format is 2"):
        Environment.open(locate(env_path))
    assert tree(env_path / "blob") == before
    assert (env_path / MARKER).read_bytes() == marker


def test_a_broken_marker_is_refused(tmp_path: Path) -> None:
    (tmp_path / MARKER).write_text("not json")
    with pytest.raises(EnvironmentRefused, match=r"mzsql\.json cannot be read"):
        locate(tmp_path)


def test_stores_of_another_environment_are_refused(tmp_path: Path) -> None:
    Environment.open(locate(tmp_path / "a")).close()
    Environment.open(locate(tmp_path / "b")).close()
    (tmp_path / "a" / MARKER).write_bytes((tmp_path / "b" / MARKER).read_bytes())
    with pytest.raises(EnvironmentRefused, match="holds the catalog of another environment"):
        Environment.open(locate(tmp_path / "a"))


def test_reading_only_makes_nothing(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentRefused, match="is not an mzsql environment"):
        locate(tmp_path / "none", create=False)
    assert not (tmp_path / "none").exists()


def test_arguments_that_name_no_place() -> None:
    with pytest.raises(InvalidParameter, match="needs a directory, or the URLs"):
        locate(blob="mem:")
    with pytest.raises(InvalidParameter, match="not both"):
        locate("x", blob="mem:")
