"""What the data source's options may say."""

from __future__ import annotations

import pytest

from mzsql.repr.errors import InvalidParameter
from mzsql.spark.source import target

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
