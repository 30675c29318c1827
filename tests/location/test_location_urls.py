"""URLs of backends: what is shown of them, whatever is wrong with them, and their options."""

from __future__ import annotations

import importlib
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import mzsql
from mzsql.cli.app import app
from mzsql.location import (
    InvalidUrl,
    Registry,
    Whereabouts,
    shown_url,
    split_url,
    url_options,
    without_secrets,
)
from mzsql.repr.errors import SqlError

SENTINEL = "xyzzyS3NTINEL"

SECRET_URLS = [
    f"postgres://user:{SENTINEL}@host/db",
    f"postgres://user:{SENTINEL}@host:5432/db?schema=a",
    f"postgres://:{SENTINEL}@host/db",
    f"postgres://user:p@{SENTINEL}@host/db",
    f"postgres://user:p/{SENTINEL}@host/db",
    f"postgres://user:12/{SENTINEL}@host/db",
    f"postgres://user:p?{SENTINEL}@host/db",
    f"postgres://user:12?{SENTINEL}@host/db",
    f"postgres://user:p#{SENTINEL}@host/db",
    f"postgres://user:{SENTINEL}/x@host/db",
    f"postgres://user:{SENTINEL}?x@host/db",
    f"postgres://user:{SENTINEL}#x@host/db",
    f"postgres://user:{SENTINEL}",
    f"postgres://user:{SENTINEL}[@host/db",
    f"postgres://user:[{SENTINEL}]@host/db",
    f"postgres://user:{SENTINEL}\N{ACCOUNT OF}@host/db",
    f"postgres://user:{SENTINEL}@host:port/db",
    f"postgres://user:%{SENTINEL}@host/db",
    f"postgres:user:{SENTINEL}@host/db",
    f"postgres:/user:{SENTINEL}@host/db",
    f"//user:{SENTINEL}@host/db",
    f"user:{SENTINEL}@host/db",
    f"postgres://host/db?password={SENTINEL}",
    f"postgres://host/db?PassWord={SENTINEL}",
    f"postgres://host/db?pass%77ord={SENTINEL}",
    f"postgres://host/db?sslpassword={SENTINEL}&schema=a",
    f"postgres://host/db?schema=a;password={SENTINEL}",
    f"postgres://host/db#password={SENTINEL}",
    f"postgres://host/db?password={SENTINEL}#x",
    f"postgres://host/db?options=password%3D{SENTINEL}",
    f"s3://bucket/p?secret_access_key={SENTINEL}",
    f"s3://bucket/p?access_key={SENTINEL}",
    f"s3://bucket/p?session_token={SENTINEL}",
    f"s3://bucket/p?endpoint=http://user:{SENTINEL}@host:9000",
    f"s3://bucket/p?endpoint=http%3A%2F%2Fuser%3A{SENTINEL}%40host",
    f"s3://user:{SENTINEL}@bucket/p?region=x",
    f"az://container/p?sig={SENTINEL}",
    f"az://container/p?AccountKey={SENTINEL}",
    f"host=h password={SENTINEL} dbname=d",
    f"host=h password='a {SENTINEL}' dbname=d",
    f"?password={SENTINEL}",
    f"file:./env?password={SENTINEL}",
    f"sqlite://user:{SENTINEL}@host/path",
    f"nobody://user:{SENTINEL}@host/path",
    f"mem:a:{SENTINEL}@b",
]


@pytest.mark.parametrize("url", SECRET_URLS)
def test_no_secret_is_shown(url: str) -> None:
    assert SENTINEL not in shown_url(url)


@pytest.mark.parametrize("url", SECRET_URLS)
@pytest.mark.parametrize("kind", ["blob", "consensus", "oracle"])
def test_no_error_of_the_core_shows_a_secret(url: str, kind: str) -> None:
    """Whatever becomes of the URL (most are refused), no message, detail, hint or cause has the password."""
    registry = Registry(discover=False)
    for name in ("file", "sqlite"):
        registry.register(name, importlib.import_module(f"mzsql.location.{name}"))
    try:
        if kind == "blob":
            registry.open_blob(url).close()
        elif kind == "consensus":
            registry.open_consensus(url).close()
        else:
            registry.open_oracle(url, "t", lambda: 0).close()
    except SqlError as refused:
        seen: BaseException | None = refused
        while seen is not None:
            assert SENTINEL not in str(seen)
            seen = seen.__cause__ or (None if seen.__suppress_context__ else seen.__context__)
    else:
        pytest.fail(f"{url} was opened")


@pytest.mark.parametrize("url", SECRET_URLS)
def test_no_error_of_the_connection_or_the_command_shows_a_secret(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a user meets them: `mzsql.connect` with the URL as any of the three, and ``mzsql inspect``."""
    embedded = Registry(discover=False)  # the other plugins would look for the host
    for name in ("file", "sqlite"):
        embedded.register(name, importlib.import_module(f"mzsql.location.{name}"))
    for place in ("mzsql.location.registry", "mzsql.adapter.environment.opening"):
        monkeypatch.setattr(f"{place}.default_registry", lambda: embedded)
    sound = {
        "blob": f"file:{tmp_path}/blob",
        "consensus": f"sqlite:{tmp_path}/c.db",
        "oracle": f"sqlite:{tmp_path}/o.db",
    }
    for kind in sound:
        with pytest.raises(mzsql.Error) as refused:
            mzsql.connect(**{**sound, kind: url}).close()
        assert SENTINEL not in str(refused.value)
        assert SENTINEL not in repr(refused.value)
    told = CliRunner().invoke(app, ["inspect", "--blob", url, "--consensus", url])
    assert told.exception is not None
    assert SENTINEL not in told.output + str(told.exception)
    assert SENTINEL not in repr(Whereabouts(url, url, url))


def test_what_is_not_secret_is_shown() -> None:
    for url in (
        "file:./env/blob",
        "file:///a/b@c",
        "sqlite:./env/consensus.db",
        "mem:",
        "mem:name",
        "s3://bucket/prefix?endpoint=http://127.0.0.1:9000&region=eu-west-1",
        "postgres://user@host:5432/db?schema=a&sslkey=/k.pem",
        "postgres:///db?host=/run/pg",
        "postgres://one:5432,two:5433/db",
        "redis://[::1]:6379/0?prefix=a",
        "./env/blob",
    ):
        assert shown_url(url) == url
        if url[0] != ".":
            assert shown_url(split_url(url)) == url
            assert split_url(shown_url(split_url(url))) == split_url(url)
    assert shown_url("postgres://me:pw@h/d?schema=a") == "postgres://me:***@h/d?schema=a"
    assert (
        shown_url("postgres://h/d?password=pw&schema=a") == "postgres://h/d?password=***&schema=a"
    )


@given(st.text(), st.text(), st.text())
def test_shown_url_never_raises_and_hides_any_escaped_password(a: str, b: str, c: str) -> None:
    shown_url(a)
    shown_url(f"{a}://{b}:{c}@x?{b}={c}#{a}")
    password = quote(a + SENTINEL + b, safe="")
    assert SENTINEL not in shown_url(f"postgres://user:{password}@host/db?x=y")
    assert SENTINEL not in shown_url(f"postgres://host/db?x=y&password={password}")


def test_a_drivers_message_loses_the_secrets_of_the_url() -> None:
    url = "postgres://me:p%40ssw%2Ford@h/d?sslpassword=tell%20tale"
    message = 'cannot connect with "p@ssw/ord" (p%40ssw%2Ford) and key "tell tale"'
    assert without_secrets(message, url) == 'cannot connect with "***" (***) and key "***"'
    assert "abc" not in without_secrets("user abc, password abc", "postgres://u:abc@h/d")
    assert without_secrets("nothing here", url) == "nothing here"


def test_an_unescaped_at_sign_in_a_password_is_refused() -> None:
    """Drivers differ about which of the two ends the password: one would take a part of it for the host, and name that in an error."""
    with pytest.raises(InvalidUrl, match="percent-escaped") as refused:
        split_url(f"postgres://user:p@{SENTINEL}@host/db")
    assert SENTINEL not in str(refused.value)
    assert split_url("postgres://user:p%40x@host/db").hostname == "host"


def test_options_are_read_and_checked() -> None:
    known = ("prefix", "region")
    assert url_options(split_url("s3://b?prefix=a%26b+c&region="), known) == {
        "prefix": "a&b+c",
        "region": "",
    }
    assert url_options(split_url("s3://b"), known) == {}
    for query, message in (
        ("prefx=a", "there is no option 'prefx'"),
        ("prefix=a&prefix=b", "the option 'prefix' stands twice"),
        ("prefix", "an option has no value"),
        ("prefix=%ff", "is not UTF-8"),
        ("prefix=a#b", "has no #"),
    ):
        with pytest.raises(InvalidUrl, match=message):
            url_options(split_url(f"s3://b?{query}"), known)
    with pytest.raises(InvalidUrl, match="The options are: prefix, region"):
        url_options(split_url("s3://b?a=b"), known)


def test_a_password_cut_by_an_ampersand_is_not_shown_as_an_option() -> None:
    with pytest.raises(InvalidUrl) as refused:
        url_options(split_url(f"pg://h?password=a&{SENTINEL}"), ("password",))
    assert SENTINEL not in str(refused.value)
