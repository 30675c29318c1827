"""What is no URL, no name of a profile, no file of profiles: an error that says so, whatever it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import mzsql
from mzsql.location import UsageError, local_url, open_blob, open_consensus, shown_url, split_url
from mzsql.location.errors import InvalidUrl
from mzsql.location.profiles import profile
from mzsql.repr.errors import InternalError, InvalidParameter, SqlError
from mzsql.spark.source import target

JUNK: list[Any] = [None, True, 0, 1.5, b"x", [], {}, object(), int]


@pytest.mark.parametrize("junk", JUNK, ids=lambda junk: type(junk).__name__)
def test_what_is_no_text(junk: Any) -> None:
    for call in (open_blob, open_consensus, split_url, profile):
        with pytest.raises(UsageError, match=f"must be a str, not {type(junk).__name__}"):
            call(junk)
    with pytest.raises(UsageError, match="a path must be a str"):
        local_url("file", junk)
    assert shown_url(junk) == f"({type(junk).__name__}, which is no URL)"


@pytest.mark.parametrize(
    "text",
    ["\ud800", "file:\udcff", "", "x", "file:%00", "sqlite:/dev/null/x", "file:" + "x" * 5000],
)
def test_texts_that_are_no_url(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said: list[SqlError] = []
    for call in (open_blob, open_consensus):
        try:
            call(text)
        except SqlError as error:
            said.append(error)
    assert said
    assert not any(isinstance(error, InternalError) for error in said)


@pytest.mark.parametrize(
    "text",
    [
        b"profiles = 5",
        b"[profiles]\nprod = 5",
        b"[profiles.prod]\nenv = 5",
        b"[profiles.prod]\nnope = 'x'",
        b"\xff",
        b"[[[",
        b"a = " + b"[" * 100_000,
        b'[profiles.prod]\nenv = "a\\u0000b"',
        b"[profiles.prod]\nenv = '/dev/null/x'",
        b"[profiles.prod]\nblob = 'mem:'\nconsensus = ''",
    ],
    ids=lambda text: repr(text[:24]),
)
def test_files_of_profiles(text: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mzsql.toml").write_bytes(text)
    with pytest.raises(mzsql.Error) as caught:
        mzsql.connect(profile="prod")
    assert not isinstance(caught.value, mzsql.InternalError)


def test_a_variable_that_names_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MZSQL_CONFIG", "x" * 5000)
    with pytest.raises(InvalidUrl, match="MZSQL_CONFIG names no file: File name too long"):
        profile("prod")


@pytest.mark.parametrize("time", ["", "x", "-1", "\xb2", "1e5", "1" * 5000])
def test_times_that_are_none(time: str) -> None:
    with pytest.raises(InvalidParameter, match="as_of must be a time in milliseconds"):
        target({"env": "/x", "relation": "t", "as_of": time})
