"""What an environment in a directory is made of is its owner's alone, whatever the umask says, and open ones are warned of."""

from __future__ import annotations

import logging
import os
import stat
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

import mzsql
from mzsql.location.file import FileBlob
from mzsql.location.privacy import OpenToOthers
from mzsql.location.sqlite import SqliteConsensus, SqliteOracle


@pytest.fixture(params=[0o022, 0o077, 0o000], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    try:
        yield
    finally:
        os.umask(before)


def modes(root: Path) -> dict[str, str]:
    """What below ``root``, itself included, has another mode than it should."""
    return {
        str(path): oct(found)
        for path in (root, *root.rglob("*"))
        if (found := stat.S_IMODE(path.stat().st_mode)) != (0o700 if path.is_dir() else 0o600)
    }


def fill(con: mzsql.Connection, rows: Path) -> None:
    con.execute("CREATE TABLE t (a int, b text)")
    for n in range(12):
        con.execute(f"INSERT INTO t SELECT {n}, repeat('x', 3000) FROM generate_series(1, 30)")
    rows.write_text("".join(f"{n},y\n" for n in range(5000)))
    con.execute(f"COPY t FROM '{rows}' (FORMAT CSV)")
    con.execute("UPDATE t SET a = a + 1; DELETE FROM t WHERE a = 3")


@pytest.mark.usefixtures("umask")
def test_an_environment_is_its_owners_alone_from_the_start(tmp_path: Path) -> None:
    env = tmp_path / "parent" / "env"
    with mzsql.connect(env) as con:
        assert modes(env) == {}
        fill(con, tmp_path / "rows.csv")
        assert modes(env) == {}
        assert list(env.rglob("*-wal"))
    with mzsql.connect(env) as con:
        con.execute("INSERT INTO t VALUES (1, 'z')")
        assert con.execute("SELECT count(*) > 5000 FROM t").fetchall() == [(True,)]
    assert modes(tmp_path / "parent") == {}
    assert any((env / "blob").rglob("*"))


@pytest.mark.usefixtures("umask")
def test_a_directory_that_was_there_empty_becomes_its_owners_alone(tmp_path: Path) -> None:
    (tmp_path / "env").mkdir(mode=0o777)
    (tmp_path / "env").chmod(0o755)
    with warnings.catch_warnings():
        warnings.simplefilter("error", OpenToOthers)
        mzsql.connect(tmp_path / "env").close()
    assert modes(tmp_path / "env") == {}


@pytest.mark.usefixtures("umask")
def test_stores_by_url_are_their_owners_alone(tmp_path: Path) -> None:
    blob = FileBlob(tmp_path / "some" / "blob")
    blob.set("a/b/c", b"secret")
    consensus = SqliteConsensus(tmp_path / "other" / "c.db")
    oracle = SqliteOracle(tmp_path / "other" / "o.db", "t", lambda: 1)
    oracle.apply_write(oracle.write_ts())
    assert modes(tmp_path / "some") == modes(tmp_path / "other") == {}
    for one in (blob, consensus, oracle):
        one.close()


@pytest.mark.usefixtures("umask")
def test_what_others_write_by_path_is_the_stores_own_once_it_is_adopted(tmp_path: Path) -> None:
    blob = FileBlob(tmp_path / "blob")
    folder = Path(blob.spark_path("parts/x"))
    folder.mkdir(parents=True)
    for name in ("p.parquet", ".p.parquet.crc"):
        (folder / name).write_bytes(b"rows")
        (folder / name).chmod(0o644)
    folder.chmod(0o755)
    blob.make_durable(["parts/x/p.parquet"])
    assert modes(tmp_path / "blob") == {}


def test_an_environment_that_is_open_is_warned_of_once_and_stays_as_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    env = tmp_path / "env"
    mzsql.connect(env).close()
    env.chmod(0o755)
    (env / "consensus.db").chmod(0o644)
    with warnings.catch_warnings(record=True) as warned, caplog.at_level(logging.WARNING):
        warnings.simplefilter("always")
        for _ in range(3):
            mzsql.connect(env).close()
    told = [one.message for one in warned if isinstance(one.message, OpenToOthers)]
    assert len(told) == 1
    assert f"chmod -R go= {env}" in str(told[0])
    assert caplog.text.count("other users of this machine can look into") == 1
    assert stat.S_IMODE(env.stat().st_mode) == 0o755


def test_a_store_by_url_that_is_open_is_warned_of(tmp_path: Path) -> None:
    folder = tmp_path / "stores"
    folder.mkdir()
    FileBlob(folder / "blob").close()
    SqliteConsensus(folder / "c.db").close()
    folder.chmod(0o755)
    for name, mode in (("blob", 0o755), ("c.db", 0o644)):
        (folder / name).chmod(mode)
    with pytest.warns(OpenToOthers, match="directory .*blob"):
        FileBlob(folder / "blob").close()
    with pytest.warns(OpenToOthers, match="file .*c.db"):
        SqliteConsensus(folder / "c.db").close()
    (folder / "c.db").chmod(0o640)
    folder.chmod(0o700)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        SqliteConsensus(folder / "c.db").close()


@pytest.mark.spark
def test_what_spark_writes_is_its_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        with mzsql.connect(tmp_path / "env") as con:
            fill(con, tmp_path / "rows.csv")
            con.execute("CREATE MATERIALIZED VIEW v AS SELECT a, count(*) AS n FROM t GROUP BY a")
            con.execute("SET statement_timeout = '150s'; SELECT count(*) FROM v")
            assert modes(tmp_path / "env") == {}
    finally:
        os.umask(before)
