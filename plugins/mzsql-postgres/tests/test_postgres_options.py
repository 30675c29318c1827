"""URLs: what goes to libpq, what is refused, and that a password is in no message."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from urllib.parse import quote, urlsplit

import pytest
from mzsql_postgres import read_options
from postgres_server import PASSWORD, USER, PostgresServer

from mzsql.location import Determinate, InvalidUrl, LocationError, open_consensus, open_oracle

SENTINEL = "s3ntinel/pass@word%"


def connected(url: str) -> dict[str, str]:
    with read_options(urlsplit(url)).connect(10.0) as connection:
        return dict(connection.info.get_parameters())


def test_libpq_parameters_pass_through(server: PostgresServer) -> None:
    """What libpq knows goes to it, and our defaults give way."""
    with read_options(
        urlsplit(
            server.url(options="-c work_mem=123kB", application_name="a test/&=", sslmode="allow")
        )
    ).connect(10.0) as connection:
        assert connection.execute("SHOW work_mem").fetchone() == ("123kB",)
        assert connection.execute("SHOW application_name").fetchone() == ("a test/&=",)
        assert connection.info.get_parameters()["sslmode"] == "allow"
    with read_options(urlsplit(server.url())).connect(10.0) as connection:
        assert connection.execute("SHOW application_name").fetchone() == ("mzsql",)
    assert connected(server.url())["target_session_attrs"] == "read-write"
    assert "cockroach" not in connected(server.url().replace("postgres://", "postgresql://", 1))


def test_cockroach_scheme(server: PostgresServer) -> None:
    """It differs by its port alone; what the server is, the server says."""
    with pytest.raises(Determinate, match="port 26257 failed"):
        open_consensus("cockroach://u@127.0.0.1/db?timeout=0.1")
    url = server.url(schema="options").replace("postgres://", "cockroach://", 1)
    open_consensus(url).close()


def test_password_percent_encoded(server: PostgresServer) -> None:
    """A password with every sign that means something in a URL."""
    assert quote(PASSWORD, safe="") in server.tcp_url()
    open_consensus(server.tcp_url(schema="options")).close()


def test_password_from_the_environment(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    """PGPASSWORD and a password file work as libpq says."""
    bare = f"postgres://{USER}@127.0.0.1:{server.port}/postgres?schema=options"
    with pytest.raises(Determinate, match="no password supplied"):
        open_consensus(bare)
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    open_consensus(bare).close()
    monkeypatch.delenv("PGPASSWORD")
    file = f"{tmp_path}/pgpass"
    with open(file, "w", opener=lambda path, flags: __import__("os").open(path, flags, 0o600)) as f:
        f.write(f"*:*:*:*:{PASSWORD.replace(':', chr(92) + ':')}\n")
    open_consensus(bare + f"&passfile={quote(file)}").close()


def test_several_hosts(server: PostgresServer) -> None:
    """The first that answers is taken."""
    login = f"{USER}:{quote(PASSWORD, safe='')}"
    open_consensus(
        f"postgres://{login}@127.0.0.1:1,127.0.0.1:{server.port}/postgres?schema=options"
    ).close()


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("colour=red", "colour"),
        ("schema=", "1 to 63 bytes"),
        (f"schema={'x' * 64}", "1 to 63 bytes"),
        ("schema=pg_catalog", "PostgreSQL's own"),
        ("timeout=soon", "timeout is no number"),
        ("timeout=-1", "above 0"),
        ("timeout=nan", "above 0"),
        ("pool_max_size=1.5", "pool_max_size is no number"),
        ("connect_timeout=0", "connect_timeout"),
        ("connect_timeout=x", "connect_timeout"),
        ("target_session_attrs=standby", "target_session_attrs"),
        ("target_session_attrs=any", "target_session_attrs"),
        ("password=x&password=y", "password"),
    ],
)
def test_refused_options(query: str, says: str) -> None:
    """An option that is unknown or out of range, before anything is connected to."""
    with pytest.raises(InvalidUrl, match=says):
        read_options(urlsplit(f"postgres://u@nowhere.invalid/db?{query}"))


@pytest.mark.parametrize(
    "url",
    [
        f"postgres://u:{SENTINEL}@127.0.0.1:1/db",
        f"postgres://u:{quote(SENTINEL, safe='')}@127.0.0.1:1/db?connect_timeout=1&timeout=1",
        f"postgres://u:{quote(SENTINEL, safe='')}@127.0.0.1:1/db?sslpassword={quote(SENTINEL, safe='')}&timeout=1",
        f"postgres://u:{quote(SENTINEL, safe='')}@127.0.0.1:x/db?timeout=1",
        f"postgres://u:{quote(SENTINEL, safe='')}%zz@127.0.0.1/db",
        f"postgres://u:{quote(SENTINEL, safe='')}@[::1/db",
        f"postgres://u:{quote(SENTINEL, safe='')}@127.0.0.1:1/db?colour=1",
        f"postgres://u@127.0.0.1:1/db?password={quote(SENTINEL, safe='')}",
        f"postgres://u:{quote(SENTINEL, safe='')}@nowhere.invalid/db?timeout=1",
    ],
)
def test_no_password_in_errors(url: str, caplog: pytest.LogCaptureFixture) -> None:
    """Neither in a message, nor a hint, nor what is chained, nor the log."""
    caplog.set_level(logging.DEBUG)
    with pytest.raises((LocationError, InvalidUrl, ValueError)) as caught:
        open_consensus(url)
    told = "".join(traceback.format_exception(caught.value, chain=True))
    told += repr(caught.value) + str(getattr(caught.value, "hint", "")) + caplog.text
    told += "".join(_everything(caught.value))
    for secret in (SENTINEL, quote(SENTINEL, safe=""), "s3ntinel"):
        assert secret not in told.replace(url, "")


def _everything(failure: BaseException | None) -> Iterator[str]:
    """Of an error and what it came from, suppressed or not: the texts, arguments, notes and attributes."""
    while failure is not None:
        yield f"{failure} {failure!r} {failure.args!r} {vars(failure)!r}"
        failure = failure.__cause__ or failure.__context__


def test_no_password_from_a_server(server: PostgresServer) -> None:
    """A password that the server refuses, and the representations of what is open."""
    wrong = server.tcp_url(schema="options").replace(
        quote(PASSWORD, safe=""), quote(SENTINEL, safe="")
    )
    with pytest.raises(Determinate, match="password authentication failed") as caught:
        open_consensus(wrong)
    assert "s3ntinel" not in "".join(traceback.format_exception(caught.value))
    assert "s3ntinel" not in "".join(_everything(caught.value))
    assert "PGPASSWORD" in (caught.value.hint or "")
    options = read_options(urlsplit(wrong))
    assert "s3ntinel" not in repr(options) + str(options)


@pytest.mark.parametrize(
    ("change", "says", "hint"),
    [
        (("/postgres?", "/nowhere?"), 'database "nowhere" does not exist', "Create the database"),
        (("postgres@", "nobody@"), 'role "nobody" does not exist', "Create the role"),
    ],
)
def test_refused_by_the_server(
    server: PostgresServer, change: tuple[str, str], says: str, hint: str
) -> None:
    """What will not get better by waiting is said at once, with what to do."""
    with pytest.raises(Determinate, match=says) as caught:
        open_oracle(server.url().replace(*change), "t", lambda: 0)
    assert hint in (caught.value.hint or "")


def test_tls_demanded(server: PostgresServer) -> None:
    """A server without TLS is not talked to where the URL demands it; with what to look at."""
    with pytest.raises(Determinate, match="does not support SSL") as caught:
        open_consensus(server.tcp_url(sslmode="verify-full", sslrootcert="system"))
    assert "sslrootcert" in (caught.value.hint or "")


def test_nobody_there(server: PostgresServer) -> None:
    """Connection refused is determinate, after the time an opening is given."""
    with pytest.raises(Determinate, match=r"refused"):
        open_consensus(f"postgres://u@127.0.0.1:1/{server.port}?timeout=0.3")
