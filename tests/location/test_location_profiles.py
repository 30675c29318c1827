"""Profiles name URLs, so that nothing shown has to carry a secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from mzsql.location import InvalidUrl
from mzsql.location.profiles import nameable, profile, resolved

FILE = """
[profiles.prod]
blob = "s3://bucket/prefix"
consensus = "postgres://app:${PG}@host/db"

[profiles.with-secret]
blob = "store://me:${PG}@host/b"
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("MZSQL_CONFIG", raising=False)
    (tmp_path / "mzsql.toml").write_text(FILE)
    return tmp_path


@pytest.mark.usefixtures("here")
def test_variables_stand_for_secrets_and_nothing_shows_them() -> None:
    found = profile("prod", {"PG": "hush"})
    assert found.consensus == "postgres://app:hush@host/db"
    assert found.oracle is None
    assert "hush" not in repr(found)
    with pytest.raises(InvalidUrl, match="asks for the variable PG"):
        profile("prod", {})


@pytest.mark.usefixtures("here")
def test_variables_of_the_environment_count_for_more() -> None:
    given = {"PG": "x", "MZSQL_PROFILE_PROD_BLOB": "mem:a", "MZSQL_PROFILE_MY_OWN_ENV": "/e"}
    assert profile("prod", given).blob == "mem:a"
    assert profile("prod", given).consensus == "postgres://app:x@host/db"
    assert profile("my-own", given).env == "/e"


@pytest.mark.usefixtures("here")
def test_a_variable_is_needed_only_by_what_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither where the environment says otherwise, nor on an executor, which opens the Blob store alone."""
    given = {"MZSQL_PROFILE_PROD_CONSENSUS": "mem:c"}
    assert profile("prod", given).consensus == "mem:c"
    assert profile("prod", {}, only="blob").blob == "s3://bucket/prefix"
    assert profile("prod", {}, only="blob").consensus is None
    monkeypatch.delenv("PG", raising=False)
    assert resolved("profile:prod", "blob") == "s3://bucket/prefix"
    with pytest.raises(InvalidUrl, match="asks for the variable PG"):
        resolved("profile:prod", "consensus")


def test_the_file_is_looked_for_in_order(here: Path) -> None:
    other = here / "other.toml"
    other.write_text('[profiles.prod]\nblob = "mem:other"\n')
    assert profile("prod", {"MZSQL_CONFIG": str(other)}).blob == "mem:other"
    with pytest.raises(InvalidUrl, match="which is no file"):
        profile("prod", {"MZSQL_CONFIG": str(here / "none")})
    (here / "mzsql.toml").unlink()
    with pytest.raises(InvalidUrl, match=r"there is no mzsql\.toml"):
        profile("prod", {})
    home = here / "home" / ".config" / "mzsql"
    home.mkdir(parents=True)
    other.rename(home / "mzsql.toml")
    assert profile("prod", {}).blob == "mem:other"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[profiles.prod\n", "cannot be read"),
        ("[profiles]\nprod = 3\n", "cannot be read"),
        ('[profiles.prod]\nblobb = "mem:"\n', "'blobb', which is none of"),
        ('[profiles.prod]\nenv = "x"\nblob = "mem:"\n', "both a directory and URLs"),
        ("", "there is no profile 'prod' in"),
    ],
)
def test_what_is_wrong_with_a_profile_is_said(here: Path, text: str, message: str) -> None:
    (here / "mzsql.toml").write_text(text)
    with pytest.raises(InvalidUrl, match=message):
        profile("prod", {})


@pytest.mark.usefixtures("here")
def test_a_name_is_checked() -> None:
    with pytest.raises(InvalidUrl, match="not the name of a profile"):
        profile("a/b", {})


@pytest.mark.usefixtures("here")
def test_a_url_with_a_secret_is_named_by_its_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PG", "hush")
    assert nameable("s3://bucket/prefix") == "s3://bucket/prefix"
    assert nameable("store://me:hush@host/b") == "profile:with-secret"
    assert nameable("store://me:hush@host/other") is None
    assert resolved("profile:with-secret", "blob") == "store://me:hush@host/b"
    assert resolved("mem:x", "blob") == "mem:x"
    with pytest.raises(InvalidUrl, match="names no consensus"):
        resolved("profile:with-secret", "consensus")
