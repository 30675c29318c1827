"""Cursors and prepared statements: PostgreSQL's behaviour and errors."""

from __future__ import annotations

import time

import pytest

import mzsql


@pytest.fixture
def con(tmp_path):
    with mzsql.connect(tmp_path / "env") as connection:
        connection.execute("CREATE TABLE t (k int, v int)")
        connection.execute("INSERT INTO t VALUES (1, 10), (2, 20), (3, 30)")
        yield connection


def fails(con, sql):
    with pytest.raises(mzsql.Error) as failure:
        con.execute(sql)
    return failure.value.sqlstate, str(failure.value)


def tag(con, sql):
    return con.execute(sql).statusmessage


# --- cursors ------------------------------------------------------------------------------------


def test_fetch_goes_forward_through_the_rows(con):
    con.execute("BEGIN")
    assert tag(con, "DECLARE c CURSOR FOR SELECT k FROM t ORDER BY k") == "DECLARE CURSOR"
    nothing = con.execute("FETCH 0 c")
    assert (nothing.fetchall(), nothing.statusmessage) == ([], "FETCH 0")
    assert con.execute("FETCH c").fetchall() == [(1,)]
    assert con.execute("FETCH FORWARD 1 FROM c").fetchall() == [(2,)]
    assert con.execute("FETCH ALL IN c").fetchall() == [(3,)]
    assert con.execute("FETCH NEXT FROM c").fetchall() == []
    assert tag(con, "CLOSE c") == "CLOSE CURSOR"
    assert fails(con, "FETCH c") == ("34000", 'cursor "c" does not exist')


def test_a_cursor_reads_at_its_transactions_time(con):
    con.execute("BEGIN")
    con.execute("DECLARE c CURSOR FOR SELECT count(*) FROM t")
    assert con.execute("SELECT count(*) FROM t").fetchall() == [(3,)]
    with mzsql.connect(con.locations.directory) as other:
        other.execute("INSERT INTO t VALUES (4, 40)")
    assert con.execute("FETCH c").fetchall() == [(3,)]
    con.execute("COMMIT")
    assert con.execute("SELECT count(*) FROM t").fetchall() == [(4,)]


def test_cursors_end_with_their_transaction(con):
    for end in ("COMMIT", "ROLLBACK"):
        con.execute("BEGIN")
        con.execute("DECLARE c CURSOR FOR SUBSCRIBE t")
        assert len(con.execute("FETCH 10 c").fetchall()) == 3
        assert con.coordinator.subscriptions == 1
        con.execute(end)
        assert con.coordinator.subscriptions == 0
        assert fails(con, "FETCH c")[0] == "34000"


def test_a_text_of_several_statements_may_use_a_cursor(con):
    text = "DECLARE c CURSOR FOR SELECT k FROM t ORDER BY k; FETCH 2 c"
    assert con.execute(text).fetchall() == [(1,), (2,)]
    assert fails(con, "FETCH c")[0] == "34000"


@pytest.mark.parametrize(
    ("statements", "state", "message"),
    [
        (["DECLARE c CURSOR FOR SELECT 1"], "25P01", "can only be used in transaction blocks"),
        (
            ["BEGIN", "DECLARE c CURSOR FOR SELECT 1", "DECLARE c CURSOR FOR SELECT 1"],
            "42P03",
            'cursor "c" already exists',
        ),
        (["FETCH c"], "34000", 'cursor "c" does not exist'),
        (["CLOSE c"], "34000", 'cursor "c" does not exist'),
        (["BEGIN", "DECLARE c CURSOR FOR SELECT x FROM t"], "42703", 'column "x" does not exist'),
        (["DECLARE c SCROLL CURSOR FOR SELECT 1"], "0A000", "only plain cursors"),
        (["FETCH BACKWARD 1 FROM c"], "0A000", "only be read forward"),
        (["FETCH 1.5 FROM c"], "42601", "Expected literal unsigned integer"),
        (["FETCH c WITH (timeout = 'soon')"], "22023", 'invalid value for parameter "timeout"'),
        (
            [
                "BEGIN",
                "DECLARE c CURSOR FOR SELECT 1 / v FROM t WHERE k - k = v - v",
                "FETCH c WITH (time)",
            ],
            "42601",
            "Expected TIMEOUT",
        ),
    ],
)
def test_errors_are_postgres(con, statements, state, message):
    *before, last = statements
    if "timeout" in last:
        before = ["BEGIN", "DECLARE c CURSOR FOR SELECT 1"]
    for statement in before:
        con.execute(statement)
    found_state, found = fails(con, last)
    assert found_state == state
    assert message in found


def test_subscribe_is_the_only_read_of_its_transaction(con):
    con.execute("BEGIN")
    con.execute("DECLARE c CURSOR FOR SUBSCRIBE t")
    con.execute("FETCH 0 c")
    state, message = fails(con, "SELECT * FROM t")
    assert message == "SUBSCRIBE in transactions must be the only read statement"
    con.execute("ROLLBACK")
    con.execute("BEGIN")
    con.execute("SELECT * FROM t")
    con.execute("DECLARE c CURSOR FOR SUBSCRIBE t")
    state, message = fails(con, "FETCH 0 c")
    assert state == "25006"
    assert "SELECT queries cannot be combined with other query types" in message
    con.execute("ROLLBACK")
    con.execute("BEGIN")
    con.execute("INSERT INTO t VALUES (9, 9)")
    con.execute("DECLARE c CURSOR FOR SUBSCRIBE t")
    assert fails(con, "FETCH 0 c")[1] == "transaction in write-only mode"
    con.execute("ROLLBACK")


def test_as_of_lifts_that_restriction(con):
    ts = con.execute("SELECT * FROM t").timestamp
    con.execute("BEGIN")
    con.execute(f"DECLARE c CURSOR FOR SUBSCRIBE t AS OF {ts}")
    assert len(con.execute("FETCH ALL c").fetchall()) == 3
    assert len(con.execute("SELECT * FROM t").fetchall()) == 3
    con.execute("COMMIT")


def test_fetch_from_a_subscribe_waits_by_its_timeout(con):
    con.execute("BEGIN")
    con.execute("DECLARE c CURSOR FOR SUBSCRIBE t")
    assert [r[2] for r in con.execute("FETCH 2 c WITH (timeout = '30s')").fetchall()] == [1, 2]
    assert [r[2] for r in con.execute("FETCH ALL c").fetchall()] == [3]
    begun = time.monotonic()
    assert con.execute("FETCH 1 c WITH (timeout = '200ms')").fetchall() == []
    assert time.monotonic() - begun >= 0.2
    assert con.execute("FETCH 1 c WITH (timeout = '0s')").fetchall() == []
    with mzsql.connect(con.locations.directory) as other:
        other.execute("INSERT INTO t VALUES (4, 40)")
    assert [r[1:] for r in con.execute("FETCH c").fetchall()] == [(1, 4, 40)]


def test_fetch_from_a_subscribe_ends_at_statement_timeout(con):
    con.execute("BEGIN")
    con.execute("DECLARE c CURSOR FOR SUBSCRIBE t WITH (SNAPSHOT = false)")
    con.execute("SET statement_timeout = '300ms'")
    state, message = fails(con, "FETCH c")
    assert (state, message) == ("57014", "canceling statement due to statement timeout")
    con.execute("ROLLBACK")
    assert con.coordinator.subscriptions == 0


# --- prepared statements --------------------------------------------------------------------------


def test_prepared_statements_take_typed_parameters(con):
    assert tag(con, "PREPARE p (int, text) AS SELECT v + $1, $2 FROM t WHERE k = $1") == "PREPARE"
    assert con.execute("EXECUTE p (1, 'x''y')").fetchall() == [(11, "x'y")]
    assert con.execute("EXECUTE p ('2', 1 + 1)").fetchall() == [(22, "2")]
    assert con.execute("EXECUTE p (NULL, NULL)").fetchall() == []


def test_types_follow_from_where_a_parameter_stands(con):
    con.execute("PREPARE p AS SELECT $1 || 'x', k FROM t WHERE k < $2 AND v = $2 * 10 ORDER BY k")
    assert con.execute("EXECUTE p (1, '2')").fetchall() == []
    assert con.execute("EXECUTE p ('a', 2)").fetchall() == []
    con.execute("PREPARE i AS INSERT INTO t VALUES ($1,$2)")
    assert tag(con, "EXECUTE i ('7', 70)") == "INSERT 0 1"
    con.execute("PREPARE d AS DELETE FROM t WHERE k = $1")
    assert tag(con, "EXECUTE d (7)") == "DELETE 1"
    assert con.execute("PREPARE a AS SELECT $1; EXECUTE a ('b')").fetchall() == [("b",)]


def test_an_argument_cannot_be_more_than_one_value(con):
    con.execute("PREPARE p (int) AS SELECT k FROM t WHERE k = $1")
    assert fails(con, "EXECUTE p (1) OR true")[0] == "42601"
    assert con.execute("EXECUTE p (1 + 1)").fetchall() == [(2,)]
    con.execute("PREPARE q (text) AS SELECT count(*) FROM t WHERE 'x' = $1")
    assert con.execute("EXECUTE q ('y'' OR ''x'' = ''x')").fetchall() == [(0,)]


def test_an_argument_s_names_are_not_the_prepared_statement_s(con):
    con.execute("PREPARE p (int) AS SELECT k FROM t WHERE k = $1 ORDER BY k")
    assert fails(con, "EXECUTE p (k)") == ("42703", 'column "k" does not exist')
    assert fails(con, "EXECUTE p (t.k)")[0] in ("42P01", "42703")
    con.execute("PREPARE s (int) AS SELECT sum($1 + k) FROM t")
    assert fails(con, "EXECUTE s (sum(k))")[0] in ("42703", "42803")


def test_limits_take_parameters(con):
    con.execute("PREPARE l AS SELECT k FROM t ORDER BY k LIMIT $1 OFFSET $2")
    assert con.execute("EXECUTE l (1, 1)").fetchall() == [(2,)]


def test_what_is_quoted_is_no_parameter(con):
    con.execute("""PREPARE p (int) AS SELECT '$1', $1 AS "$1" /* $2 */ -- $3""")
    cursor = con.execute("EXECUTE p (5)")
    assert cursor.fetchall() == [("$1", 5)]
    assert cursor.description[1][0] == "$1"


def test_execute_means_what_the_catalog_says_then(con):
    con.execute("PREPARE p AS SELECT * FROM t")
    con.execute("DROP TABLE t")
    assert fails(con, "EXECUTE p")[0] == "42P01"
    con.execute("CREATE TABLE t (other text)")
    con.execute("INSERT INTO t VALUES ('new')")
    assert con.execute("EXECUTE p").fetchall() == [("new",)]


@pytest.mark.parametrize(
    ("statement", "state", "message"),
    [
        ("EXECUTE nothing", "26000", 'prepared statement "nothing" does not exist'),
        ("DEALLOCATE nothing", "26000", 'prepared statement "nothing" does not exist'),
        ("PREPARE p AS SELECT 1", "42P05", 'prepared statement "p" already exists'),
        ("EXECUTE p", "42601", 'wrong number of parameters for prepared statement "p"'),
        ("EXECUTE p (1, 2)", "42601", "Expected 1 parameters but got 2."),
        ("EXECUTE p ('x')", "22P02", "invalid input syntax for type integer"),
        ("PREPARE x AS SELECT nothing", "42703", 'column "nothing" does not exist'),
        ("PREPARE x AS SELECT k FROM t WHERE $2 = k", "42P18", "data type of parameter $1"),
        *(
            (f"PREPARE x AS {what}", "42601", "Expected a statement that can be prepared")
            for what in ("BEGIN", "COMMIT", "END", "ROLLBACK", "ABORT", "SET a = 1")
        ),
        ("EXECUTE p (k)", "42703", 'column "k" does not exist'),
        ("EXECUTE p ((SELECT 1))", "0A000", "cannot use subquery in EXECUTE parameter"),
        ("EXECUTE p (sum(1))", "42803", "aggregate functions are not allowed in EXECUTE"),
        ("EXECUTE p (generate_series(1, 2))", "0A000", "table functions are not allowed in EX"),
        ("SELECT $1", "42P02", "there is no parameter $1"),
    ],
)
def test_errors_of_prepared_statements_are_postgres(con, statement, state, message):
    con.execute("PREPARE p (int) AS SELECT $1")
    found_state, found = fails(con, statement)
    assert found_state == state
    assert message in found


def test_statements_are_forgotten_one_by_one_or_all_at_once(con):
    con.execute("PREPARE a AS SELECT 1; PREPARE b AS SELECT 2")
    assert tag(con, "DEALLOCATE PREPARE a") == "DEALLOCATE"
    assert fails(con, "EXECUTE a")[0] == "26000"
    assert tag(con, "DEALLOCATE ALL") == "DEALLOCATE ALL"
    assert fails(con, "EXECUTE b")[0] == "26000"


def test_discard_all_makes_the_session_new(con):
    con.execute("PREPARE a AS SELECT 1; SET search_path = nowhere")
    assert tag(con, "DISCARD TEMP") == "DISCARD TEMP"
    assert tag(con, "DISCARD ALL") == "DISCARD ALL"
    assert con.execute("SHOW search_path").fetchall() == [("public",)]
    assert fails(con, "EXECUTE a")[0] == "26000"
    con.execute("BEGIN")
    assert fails(con, "DISCARD ALL")[0] == "25001"


def test_sessions_do_not_share_what_they_keep(con):
    con.execute("PREPARE a AS SELECT 1")
    with mzsql.connect(con.locations.directory) as other:
        assert fails(other, "EXECUTE a")[0] == "26000"
        other.execute("PREPARE a AS SELECT 2")
        assert other.execute("EXECUTE a").fetchall() == [(2,)]
    assert con.execute("EXECUTE a").fetchall() == [(1,)]


def test_a_subscribe_can_be_prepared(con):
    con.execute("PREPARE s (int) AS SUBSCRIBE (SELECT k FROM t WHERE k > $1)")
    with con.subscribe("EXECUTE s (2)") as cursor:
        assert cursor.fetchone()[1:] == (1, 3)
