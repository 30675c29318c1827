"""What may be opened as an environment, and what is refused untouched."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from mzsql.adapter.environment.environment import Environment
from mzsql.adapter.environment.locations import BLOB_MARKER, MARKER, locate
from mzsql.catalog.change import Change
from mzsql.frontend.grammar.dialect import Dialect
from mzsql.location import InvalidUrl
from mzsql.repr.errors import EnvironmentRefused, InvalidParameter, Unsupported


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


def test_the_compiled_form_of_sqlglot_is_refused_before_anything_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its classes, where ``sqlglotc`` is installed, cannot be made when they are extended."""

    class Compiled:
        def __new__(cls, *_: object, **__: object) -> Compiled:
            raise TypeError("interpreted classes cannot inherit from compiled")

    locations = locate(tmp_path)
    before = tree(tmp_path)
    monkeypatch.setattr(Dialect, "parser_class", Compiled)
    with pytest.raises(Unsupported, match="the compiled form of sqlglot") as caught:
        Environment.open(locations)
    assert "pip uninstall sqlglotc" in str(caught.value.hint)
    assert tree(tmp_path) == before


def test_a_url_in_place_of_a_directory_is_told_what_to_name_and_makes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for url in ("s3://bucket/prefix", "file:./env", "postgres://me:s3cret@host/db"):
        with pytest.raises(InvalidParameter, match="a directory or profile:NAME, not a URL") as no:
            locate(url)
        assert "blob=" in str(no.value.hint)
        assert "s3cret" not in str(no.value)
    assert tree(tmp_path) == {}
    assert list(tmp_path.iterdir()) == []
    # What is there by such a name, or is said to be a directory, is one.
    (tmp_path / "odd:name").mkdir()
    assert locate("odd:name").directory == str(tmp_path / "odd:name")
    assert locate("./file:other").directory == str(tmp_path / "file:other")


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
        newer.setattr("mzsql.catalog.durable.FORMAT_VERSION", 2)
        Environment.open(locate(env_path)).close()
    marked = msgspec.json.decode((env_path / MARKER).read_bytes())
    assert 2 in marked.values()
    if where == "catalog":
        # As if the two had come apart: each is looked at by itself.
        kept = {key: 1 if value == 2 else value for key, value in marked.items()}
        (env_path / MARKER).write_bytes(msgspec.json.encode(kept))
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


def urls(tmp_path: Path, name: str, *, blob: str | None = None) -> dict[str, str]:
    return {
        "blob": f"file:{tmp_path}/{blob or name}",
        "consensus": f"sqlite:{tmp_path}/{name}.db",
        "oracle": f"sqlite:{tmp_path}/{name}-oracle.db",
    }


def test_the_blob_store_of_another_environment_is_refused_untouched(tmp_path: Path) -> None:
    first, second = (Environment.open(locate(**urls(tmp_path, name))) for name in "ab")
    first.close()
    second.close()
    before = tree(tmp_path / "a")
    for name in ("b", "new"):
        with pytest.raises(EnvironmentRefused, match="belongs to another environment") as refused:
            Environment.open(locate(**urls(tmp_path, name, blob="a")))
        assert first.id in str(refused.value)
    assert tree(tmp_path / "a") == before
    with pytest.raises(EnvironmentRefused, match="holds nothing of the environment"):
        Environment.open(locate(**urls(tmp_path, "a", blob="empty")))


def test_an_environment_that_was_never_marked_is_marked_when_it_is_opened(tmp_path: Path) -> None:
    where = locate(**urls(tmp_path, "a"))
    older = Environment.open(where)
    unmarked = msgspec.structs.replace(older.meta, blob_marked=False)
    older.catalog.transact(lambda _: (Change(meta=unmarked), None))
    older.close()
    (tmp_path / "a" / BLOB_MARKER).unlink()
    env = Environment.open(where)
    assert env.meta.blob_marked
    assert (tmp_path / "a" / BLOB_MARKER).is_file()
    env.close()


def test_processes_that_make_an_environment_at_once_make_one(tmp_path: Path) -> None:
    where = locate(**urls(tmp_path, "a"))
    with ThreadPoolExecutor(6) as pool:
        opened = list(pool.map(lambda _: Environment.open(where), range(6)))
    assert len({env.id for env in opened}) == 1
    for env in opened:
        env.close()


def test_a_profile_names_an_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    given = urls(tmp_path, "a")
    lines = [f'{kind} = "{url}"' for kind, url in given.items()]
    Path("mzsql.toml").write_text("\n".join(["[profiles.prod]", *lines, ""]))
    for found in (locate("profile:prod"), locate(profile="prod")):
        assert (found.blob, found.consensus, found.oracle) == tuple(given.values())
        assert found.profile == "prod"
    with pytest.raises(InvalidUrl, match="there is no profile 'test'") as missing:
        locate("profile:test")
    assert "MZSQL_PROFILE_TEST_BLOB" in str(missing.value.hint)
    with pytest.raises(InvalidParameter, match="either a profile"):
        locate(blob="mem:", profile="prod")
    monkeypatch.setenv("MZSQL_PROFILE_TEST_ENV", str(tmp_path / "env"))
    assert locate("profile:test").directory == str(tmp_path / "env")


def test_a_location_shows_no_secret() -> None:
    where = locate(blob="s3://b/p?secret_key=hush", consensus="postgres://me:hush@host/db?schema=x")
    assert "hush" not in repr(where)
    assert "hush" not in where.where
    assert "postgres://me:***@host/db?schema=x" in repr(where)
