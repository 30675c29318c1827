"""What the data source's options may say."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from mzsql.repr.errors import InternalError, InvalidParameter, SqlError
from mzsql.spark.opened import reading
from mzsql.spark.options import target

SECRET = {"consensus": "postgres://me:hush@host/db", "blob": "s3://b/p"}


def test_a_profile_names_the_environment() -> None:
    found = target({"profile": "prod", "path": "public.t"})
    assert found.locations == (("profile", "prod"),)
    assert target({"env": "profile:prod", "path": "t"}).locations == (("env", "profile:prod"),)


def test_an_option_with_a_secret_is_refused_and_not_repeated() -> None:
    with pytest.raises(InvalidParameter, match="option consensus holds a secret") as refused:
        target({**SECRET, "path": "public.t"})
    assert "hush" not in str(refused.value)
    assert 'option("profile"' in str(refused.value.hint)
    plain = {"consensus": "postgres://me@host/db", "blob": "s3://b/p?region=x", "path": "t"}
    assert dict(target(plain).locations)["consensus"] == plain["consensus"]


#: What an option may say that is none of what it should be.
TEXTS = (
    *("", " ", "x", "a\0b", "\ud800", "~nobody_at_all/env", "x" * 5000, "-1", "1e3", "9" * 19),
    *(
        "postgres://[",
        "postgres://",
        "s3://",
        "://",
        "sqlite:",
        "file:",
        "mem:",
        "what:ever",
        "a://b",
    ),
)
OPTIONS = ("env", "profile", "blob", "consensus", "oracle", "relation", "path", "as_of")


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("text", TEXTS, ids=lambda text: ascii(text)[:20])
def test_each_option_takes_any_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str, text: str
) -> None:
    """What can be said of it is said by a typed error; nothing is made where there was nothing."""
    monkeypatch.chdir(tmp_path)
    given = {"relation": "public.t", option: text}
    if option in ("blob", "consensus", "oracle"):
        given = {"blob": "mem:", "consensus": "mem:", **given}
    elif option not in ("env", "profile"):
        given["env"] = "nowhere"
    with pytest.raises(SqlError) as refused, reading(target(given).locations) as reader:
        reader.relation(target(given).relation)
    assert not isinstance(refused.value, InternalError)
    assert str(refused.value)
    assert not list(tmp_path.iterdir())


@given(some.dictionaries(some.sampled_from([*OPTIONS, "what"]), some.text(max_size=20)))
def test_any_options_are_a_target_or_refused(options: dict[str, str]) -> None:
    try:
        found = target(options)
    except InvalidParameter:
        return
    assert found.relation
    assert found.locations
    assert found.as_of is None or 0 <= found.as_of < 2**63


@pytest.mark.parametrize("text", ["9" * 19, str(2**63), "-1", "1.5", "now", "", "٣"])
def test_a_time_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidParameter, match="option as_of must be a time in milliseconds"):
        target({"env": "e", "path": "t", "as_of": text})
