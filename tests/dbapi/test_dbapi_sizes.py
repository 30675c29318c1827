"""What `pg_column_size` and `mz_row_size` tell, against a model of the encoding: a byte for the type, then as many as the value needs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import mzsql

_NUMBERS = [0, 1, -1, 255, 256, -256, -257, 65535, 65536, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63)]


@pytest.fixture(scope="module")
def con(tmp_path_factory: pytest.TempPathFactory) -> Iterator[mzsql.Connection]:
    with mzsql.connect(tmp_path_factory.mktemp("sizes") / "env") as con:
        con.execute("CREATE TABLE t (n bigint, s text)")
        values = ", ".join(f"({n}, repeat('é', {i * 40}))" for i, n in enumerate(_NUMBERS))
        con.execute(f"INSERT INTO t VALUES {values}, (NULL, NULL)")
        yield con


def _of_number(value: int | None) -> int:
    if value is None:
        return 1
    magnitude = value if value >= 0 else -1 - value
    return 1 + (magnitude.bit_length() + 7) // 8


def _of_text(value: str | None) -> int:
    if value is None:
        return 1
    length = len(value.encode())
    return 1 + (1 if length < 256 else 2) + length


def test_sizes_follow_from_magnitudes_and_lengths(con: mzsql.Connection) -> None:
    rows = con.execute("SELECT n, s, pg_column_size(n), pg_column_size(s) FROM t").fetchall()
    assert len(rows) == len(_NUMBERS) + 1
    for n, s, of_n, of_s in rows:
        assert of_n == (None if n is None else _of_number(n)), n
        assert of_s == (None if s is None else _of_text(s)), s


def test_a_record_has_a_header_and_a_row_room_of_its_own(con: mzsql.Connection) -> None:
    rows = con.execute("SELECT n, s, pg_column_size(t.*), mz_row_size(t.*) FROM t").fetchall()
    for n, s, of_record, of_row in rows:
        held = _of_number(n) + _of_text(s)
        assert of_record == 9 + held
        assert of_row == (24 if held <= 23 else 24 + held)


def test_what_has_no_such_size_is_refused(con: mzsql.Connection) -> None:
    assert con.execute("SELECT pg_column_size(NULL)").fetchall() == [(None,)]
    with pytest.raises(mzsql.ProgrammingError, match="mz_row_size requires a record type"):
        con.execute("SELECT mz_row_size(1)")
    with pytest.raises(mzsql.NotSupportedError, match="the size of a jsonb is not supported"):
        con.execute("SELECT pg_column_size('{}'::jsonb)")
