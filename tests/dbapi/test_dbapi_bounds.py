"""What comes to a client is bounded in rows and bytes while it comes, whichever way it takes."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

import mzsql
from mzsql.adapter.statements import copy_to
from mzsql.adapter.subscribe import output
from mzsql.dbapi import cursor as cursors
from mzsql.location.file import FileBlob
from mzsql.location.registry import Registry

TOO_LARGE = r"result exceeds max size of 20\.5 KB"
#: Rows of 1 kB each.
ROWS = 5000


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("bounds") / "env"
    with mzsql.connect(made) as con:
        con.execute("CREATE TABLE t (k int, v text)")
        con.execute(
            f"INSERT INTO t SELECT i, repeat('x', 1000) FROM generate_series(1, {ROWS}) g(i)"
        )
    return made


@pytest.fixture
def con(place: Path) -> Iterator[mzsql.Connection]:
    with mzsql.connect(place) as made:
        yield made


def small(con: mzsql.Connection) -> mzsql.Connection:
    con.execute("SET max_query_result_size = '20kB'")
    return con


def up_to(con: mzsql.Connection) -> str:
    """A subscription that ends with the snapshot."""
    at = con.execute("SELECT count(*) FROM t").timestamp
    return f"SUBSCRIBE t AS OF {at} UP TO {int(at or 0) + 1}"


@pytest.mark.parametrize(
    "query",
    [
        "SELECT string_agg(v, ',') FROM t",
        "SELECT array_agg(v) FROM t",
        "SELECT list_agg(v) FROM t",
        "SELECT jsonb_agg(v) FROM t",
        "SELECT jsonb_object_agg(k, v) FROM t",
        "SELECT map_agg(k::text, v) FROM t",
        "SELECT string_agg(repeat('x', 1000), '') FROM generate_series(1, 100)",
        "SELECT v FROM t",
        "SELECT t.v FROM t, mz_catalog.mz_tables m WHERE m.name = 't'",
        "COPY t TO STDOUT",
        "COPY (SELECT string_agg(v, ',') FROM t) TO STDOUT",
        "INSERT INTO u SELECT * FROM t RETURNING v",
    ],
)
def test_a_result_ends_where_it_is_too_large(con: mzsql.Connection, query: str) -> None:
    con.execute("CREATE TABLE IF NOT EXISTS u (k int, v text)")
    cursor = small(con).cursor()
    with pytest.raises(mzsql.OperationalError, match=TOO_LARGE) as raised:
        cursor.copy(query).__enter__() if query.startswith("COPY") else cursor.execute(query)
    assert raised.value.sqlstate == "53200"
    assert con.execute("SELECT count(*) FROM u").fetchall() == [(0,)]


@pytest.mark.parametrize("path", ["out.csv", "out.parquet"])
def test_a_file_of_what_is_too_large_is_not_there(
    con: mzsql.Connection, tmp_path: Path, path: str
) -> None:
    kind = path.rpartition(".")[2]
    with pytest.raises(mzsql.OperationalError, match=TOO_LARGE):
        small(con).execute(f"COPY t TO '{tmp_path / path}' (FORMAT {kind})")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("how", ["fetchall", "arrow", "pandas"])
def test_all_of_a_subscription_is_no_more_than_a_result_may_be(
    con: mzsql.Connection, how: str
) -> None:
    query = up_to(con)
    with con.subscribe(query) as cursor:
        assert len(getattr(cursor, how)()) == ROWS
    small(con)
    with (
        con.subscribe(query) as cursor,
        pytest.raises(mzsql.OperationalError, match=TOO_LARGE),
    ):
        getattr(cursor, how)()


def test_fetchmany_of_a_subscription_ends_about_where_a_result_would(
    con: mzsql.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "BATCH_BYTES", 8_000)
    query = up_to(con)
    small(con)
    with con.subscribe(query) as cursor:
        found = [rows[0][2]] if (rows := cursor.fetchmany(1)) else []
        counts = []
        while rows := cursor.fetchmany(ROWS):
            counts.append(len(rows))
            found += [row[2] for row in rows]
    assert sorted(found) == list(range(1, ROWS + 1))
    assert max(counts) <= (20_480 + 8_000) / 1000


def test_fetch_of_a_subscription_ends_where_a_result_would(con: mzsql.Connection) -> None:
    query = up_to(con)
    small(con)
    con.execute("BEGIN")
    con.execute(f"DECLARE c CURSOR FOR {query}")
    found, counts = [], []
    while rows := con.execute("FETCH ALL c").fetchall():
        counts.append(len(rows))
        found += [row[2] for row in rows]
    con.execute("COMMIT")
    assert sorted(found) == list(range(1, ROWS + 1))
    assert max(counts) <= 20


def test_pieces_of_a_subscription_and_of_a_copy_are_bounded_in_bytes(
    con: mzsql.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "BATCH_BYTES", 100_000)
    monkeypatch.setattr(copy_to, "BATCH_BYTES", 100_000)
    monkeypatch.setattr(copy_to, "FILE_BYTES", 1_000_000)
    with con.subscribe(up_to(con)) as cursor:
        batches = list(cursor.arrow_batches())
    assert sum(batch.num_rows for batch in batches) == ROWS
    assert max(batch.nbytes for batch in batches) <= 100_000
    with con.cursor().copy("COPY t TO STDOUT") as copy:
        parts = list(copy)
    assert sum(part.count(b"\n") for part in parts) == ROWS
    assert max(map(len, parts)) <= 150_000
    # A store that any URL stands for.
    monkeypatch.setattr(Registry, "open_blob", lambda _own, _url: FileBlob(tmp_path / "store"))
    con.execute("COPY t TO 's3://bucket/prefix' (FORMAT csv)")
    blob = FileBlob(tmp_path / "store")
    files = [blob.get(key) or b"" for key, _ in blob.list_keys_and_metadata("")]
    assert sum(file.count(b"\n") for file in files) == ROWS
    assert max(map(len, files)) <= 1_100_000


def test_rows_for_python_are_made_as_they_are_fetched(con: mzsql.Connection) -> None:
    cursor = con.execute("SELECT k, v FROM t ORDER BY k")
    tracemalloc.start()
    try:
        assert cursor.fetchmany(3) == [(k, "x" * 1000) for k in (1, 2, 3)]
        assert cursor.fetchone() == (4, "x" * 1000)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < cursors.PIECE_ROWS * 1500
    assert not cursor.ended
    assert [row[0] for row in cursor.fetchmany(ROWS)] == list(range(5, ROWS + 1))
    assert cursor.ended
    assert cursor.fetchall() == []
    assert cursor.fetchone() is None


def test_rows_without_columns_are_counted(con: mzsql.Connection) -> None:
    cursor = con.execute("SELECT FROM t")
    assert cursor.fetchmany(2) == [(), ()]
    assert len(cursor.fetchall()) == ROWS - 2


@pytest.mark.parametrize(
    "query",
    [
        "SELECT repeat('x', 2000000) FROM generate_series(1, 1200)",
        "SELECT length(string_agg(repeat('x', 1000000), ',')) FROM generate_series(1, 3000)",
    ],
)
@pytest.mark.soak  # takes 9 GB of memory, which tests that run beside it need
def test_what_no_array_holds_is_too_much_and_no_bug(con: mzsql.Connection, query: str) -> None:
    with pytest.raises(mzsql.OperationalError) as raised:
        con.execute(query)
    assert raised.value.sqlstate == "53200"


def test_documents_and_maps_of_many_keys_take_no_more_than_they_are_large(
    con: mzsql.Connection,
) -> None:
    """Looking through all entries for each key took 20 GB."""
    ((last, keys, said),) = con.execute(
        "SELECT m -> '1', map_length(m), d ->> '1' FROM (SELECT map_agg(k::text, j ORDER BY j) AS m,"
        " jsonb_object_agg(k, j ORDER BY j) AS d"
        f" FROM (SELECT k % {ROWS - 1} AS k, k AS j FROM t) AS u) AS a"
    ).fetchall()
    assert (last, keys, said) == (ROWS, ROWS - 1, str(ROWS))
