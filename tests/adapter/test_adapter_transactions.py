"""Transactions and variables of sessions, without Spark."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from commit_kit import HANG, Place, opened
from hypothesis import given, settings
from hypothesis import strategies as st
from locks_kit import once_somebody_waits

from mzsql.adapter.commit.table_locks import EXCLUSIVE
from mzsql.adapter.session.session import Session
from mzsql.catalog.settings import VARIABLES, milliseconds, value_for
from mzsql.frontend import parse_statements
from mzsql.repr.errors import (
    IdleInTransactionTimeout,
    InvalidParameter,
    QueryCanceled,
    SqlError,
    UndefinedObject,
    Unsupported,
)
from mzsql.repr.interrupt import Interrupt
from mzsql.threads import ALARMS


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with opened(tmp_path_factory.mktemp("shared") / "env") as (one,):
        one.run("CREATE TABLE t (a int); INSERT INTO t VALUES (1)")
        yield one


@pytest.fixture
def session(shared: Place) -> Iterator[Session]:
    one = Session()
    yield one
    if one.transaction is not None:
        shared.run("ROLLBACK", one)


def _until(true: Callable[[], object]) -> None:
    end = time.monotonic() + HANG
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def _alarms_until(seconds: float) -> None:
    """Wait until every alarm that falls due within so many seconds from now has been raised: they are, in order, on one thread."""
    raised = threading.Event()
    ALARMS.add(time.monotonic() + seconds, raised.set)
    assert raised.wait(HANG)


def _fails(shared: Place, session: Session, text: str, message: str, sqlstate: str) -> None:
    with pytest.raises(SqlError) as raised:
        shared.run(text, session)
    assert raised.value.message.startswith(message)
    assert raised.value.sqlstate == sqlstate


def _show(shared: Place, session: Session, name: str) -> str:
    ((value,),) = shared.rows(f"SHOW {name}", session)
    assert isinstance(value, str)
    return value


# --- kinds of transactions ------------------------------------------------------------------------


def test_the_first_read_fixes_the_time_of_all(shared: Place, session: Session) -> None:
    shared.run("CREATE TABLE fixed (a int); INSERT INTO fixed VALUES (1)")
    shared.run("BEGIN", session)
    assert shared.rows("SELECT a FROM fixed", session) == [(1,)]
    shared.run("INSERT INTO fixed VALUES (2)")
    assert shared.rows("SELECT a FROM fixed", session) == [(1,)]
    shared.run("COMMIT", session)
    assert shared.rows("SELECT a FROM fixed", session) == [(1,), (2,)]


def test_writes_are_buffered_until_commit_and_gone_after_rollback(
    shared: Place, session: Session
) -> None:
    shared.run("CREATE TABLE buffered (a int); CREATE TABLE other (a int)")
    appends = shared.coordinator.commits.appends
    shared.run(
        "BEGIN; INSERT INTO buffered VALUES (1); INSERT INTO other VALUES (2); INSERT INTO buffered VALUES (3)",
        session,
    )
    assert shared.rows("SELECT * FROM buffered") == []
    shared.run("COMMIT", session)
    assert shared.coordinator.commits.appends == appends + 1
    assert shared.rows("SELECT a FROM buffered UNION ALL SELECT a FROM other") == [(1,), (2,), (3,)]
    shared.run("BEGIN; INSERT INTO buffered VALUES (4); ROLLBACK", session)
    assert shared.rows("SELECT a FROM buffered") == [(1,), (3,)]


@pytest.mark.parametrize(
    "reads",
    [
        "DELETE FROM copied",
        "UPDATE copied SET a = a + 1",
        "INSERT INTO copied SELECT a FROM copied",
        "INSERT INTO aside SELECT a FROM copied_view",
    ],
)
def test_what_was_copied_in_a_transaction_is_not_overlooked_by_its_statements(
    tmp_path: Path, reads: str
) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("1\n2\n3\n")
    with opened(tmp_path / "env") as (place,):
        session = Session()
        place.run(
            "CREATE TABLE copied (a int); CREATE TABLE aside (a int);"
            "CREATE VIEW copied_view AS SELECT a FROM copied"
        )
        place.run(f"BEGIN; COPY copied FROM '{file}' (FORMAT csv)", session)
        place.run("INSERT INTO aside VALUES (4); DELETE FROM aside", session)
        place.run("INSERT INTO copied VALUES (5)", session)
        with pytest.raises(Unsupported, match='reading "copied" in the transaction') as raised:
            place.run(reads, session)
        assert raised.value.hint == "Commit the COPY first."
        place.run("ROLLBACK", session)
        assert place.rows("SELECT a FROM copied UNION ALL SELECT a FROM aside") == []
        place.run(f"BEGIN; COPY copied FROM '{file}' (FORMAT csv); COMMIT", session)
        place.run("DELETE FROM copied WHERE a < 3", session)
        assert place.rows("SELECT a FROM copied") == [(3,)]


@pytest.mark.parametrize(
    ("before", "then", "message", "sqlstate"),
    [
        ("SELECT * FROM t", "INSERT INTO t VALUES (2)", "transaction in read-only mode", "25006"),
        ("SELECT * FROM t", "CREATE TABLE x (a int)", "transaction in read-only mode", "25006"),
        ("SELECT 1", "CREATE TABLE x (a int)", "transaction in read-only mode", "25006"),
        ("INSERT INTO t VALUES (2)", "SELECT * FROM t", "transaction in write-only mode", "25001"),
        (
            "INSERT INTO t VALUES (2)",
            "CREATE TABLE x (a int)",
            "transaction in write-only mode",
            "25001",
        ),
        (
            "CREATE TABLE x (a int)",
            "SELECT 1",
            "this transaction can only execute a single statement",
            "25001",
        ),
        (
            "CREATE TABLE x (a int)",
            "CREATE TABLE y (a int)",
            "this transaction can only execute a single statement",
            "25001",
        ),
        (
            "SELECT * FROM t",
            "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE",
            "SET TRANSACTION ISOLATION LEVEL must be called before any query",
            "25001",
        ),
        (
            "SELECT 1",
            "SET transaction_isolation TO serializable",
            "SET TRANSACTION ISOLATION LEVEL must be called before any query",
            "25001",
        ),
        (
            "SELECT * FROM t",
            "SET LOCAL cluster TO c",
            "SET cluster cannot be called in an active transaction",
            "25001",
        ),
        (
            "SELECT 1",
            "BEGIN READ WRITE",
            "transaction read-write mode must be set before any query",
            "25001",
        ),
        ("SELECT 1", "ALTER SYSTEM RESET ALL", "ALTER SYSTEM cannot run inside", "25001"),
    ],
)
def test_what_does_not_fit_fails_the_transaction(
    shared: Place, session: Session, before: str, then: str, message: str, sqlstate: str
) -> None:
    shared.run("BEGIN", session)
    shared.run(before, session)
    _fails(shared, session, then, message, sqlstate)
    aborted = "current transaction is aborted, commands ignored until end of transaction block"
    for text in ("SELECT 1", "SELECT nonsense", "SET cluster = c", "BEGIN"):
        _fails(shared, session, text, aborted, "25P02")
    assert shared.run("COMMIT", session)[0].tag == "ROLLBACK"
    assert shared.rows("SELECT a FROM t") == [(1,)]


def test_constants_and_the_catalog_may_be_read_in_a_transaction_that_writes(
    shared: Place, session: Session
) -> None:
    shared.run("BEGIN; SELECT 1; SELECT now(); INSERT INTO t VALUES (2)", session)
    assert shared.rows("SELECT 1 + 1", session) == [(2,)]
    assert shared.rows("SELECT count(*) FROM mz_catalog.mz_schemas WHERE name = 'public'", session)
    shared.run("ROLLBACK", session)


@pytest.mark.parametrize(
    "begin", ["BEGIN READ ONLY", "BEGIN; SET TRANSACTION READ ONLY", "BEGIN READ ONLY; BEGIN"]
)
def test_a_read_only_transaction_refuses_writes(
    shared: Place, session: Session, begin: str
) -> None:
    shared.run(begin, session)
    _fails(shared, session, "INSERT INTO t VALUES (2)", "transaction in read-only mode", "25006")


def test_a_transaction_may_become_read_write_before_its_first_query(
    shared: Place, session: Session
) -> None:
    shared.run("BEGIN READ ONLY; BEGIN READ WRITE; INSERT INTO t VALUES (7); ROLLBACK", session)


def test_ddl_is_carried_out_by_commit(shared: Place, session: Session) -> None:
    shared.run("BEGIN; CREATE TABLE later (a int)", session)
    assert "later" not in [row[0] for row in shared.rows("SHOW TABLES")]
    shared.run("ROLLBACK", session)
    assert "later" not in [row[0] for row in shared.rows("SHOW TABLES")]
    shared.run("BEGIN; CREATE TABLE later (a int); COMMIT", session)
    assert "later" in [row[0] for row in shared.rows("SHOW TABLES")]
    shared.run("BEGIN; CREATE TABLE later (a int)", session)
    _fails(shared, session, "COMMIT", 'table "materialize.public.later" already exists', "42P07")
    assert session.transaction is None


def test_ends_without_a_transaction_are_warned_of(shared: Place, session: Session) -> None:
    for text in ("COMMIT", "ROLLBACK", "END", "ABORT"):
        shared.run(text, session)
        (notice,) = session.take_notices()
        assert notice.message == "there is no transaction in progress"


# --- variables ------------------------------------------------------------------------------------


def test_what_is_set_in_a_transaction_goes_back_with_it(shared: Place, session: Session) -> None:
    shared.run("SET application_name = a", session)
    shared.run("BEGIN; SET application_name = b; SET LOCAL search_path = x, y", session)
    assert _show(shared, session, "application_name") == "b"
    assert _show(shared, session, "search_path") == "x, y"
    shared.run("ROLLBACK", session)
    assert _show(shared, session, "application_name") == "a"
    shared.run("BEGIN; SET application_name = b; SET LOCAL search_path = x; COMMIT", session)
    assert _show(shared, session, "application_name") == "b"
    assert _show(shared, session, "search_path") == "public"
    shared.run("RESET application_name", session)
    assert _show(shared, session, "application_name") == ""


def test_a_transaction_s_isolation_is_its_own(shared: Place, session: Session) -> None:
    for begin in (
        "BEGIN ISOLATION LEVEL SERIALIZABLE",
        "BEGIN; SET TRANSACTION ISOLATION LEVEL SERIALIZABLE",
        "START TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ ONLY",
    ):
        shared.run(begin, session)
        assert _show(shared, session, "transaction_isolation") == "serializable"
        shared.run("COMMIT", session)
        assert _show(shared, session, "transaction_isolation") == "strict serializable"
    shared.run(
        "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL STRONG SESSION SERIALIZABLE",
        session,
    )
    assert _show(shared, session, "transaction_isolation") == "strong session serializable"
    shared.run("RESET ALL", session)
    assert _show(shared, session, "transaction_isolation") == "strict serializable"


@pytest.mark.parametrize(
    ("name", "given", "kept"),
    [
        ("statement_timeout", "60000", "1 min"),
        ("statement_timeout", "90s", "90 s"),
        ("statement_timeout", "1500us", "2 ms"),
        ("statement_timeout", "0", "0"),
        ("idle_in_transaction_session_timeout", "1 d", "1 d"),
        ("emit_timestamp_notice", "YES", "on"),
        ("emit_timestamp_notice", "f", "off"),
        ("transaction_isolation", "STRICT  Serializable", "strict serializable"),
        ("max_query_result_size", "1024MB", "1GB"),
        ("max_query_result_size", "8B", "8B"),
        ("extra_float_digits", "-15", "-15"),
        ("client_encoding", "utf-8", "UTF8"),
    ],
)
def test_a_value_is_kept_in_one_spelling(name: str, given: str, kept: str) -> None:
    assert value_for(name, (given,)) == kept
    assert value_for(name, (kept,)) == kept


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("statement_timeout", "-1", "-1 ms is outside the valid range for parameter"),
        ("statement_timeout", "25 d", "2160000000 ms is outside the valid range for parameter"),
        (
            "statement_timeout",
            "1 week",
            'invalid value for parameter "statement_timeout": "1 week"',
        ),
        ("statement_timeout", "soon", 'invalid value for parameter "statement_timeout": "soon"'),
        ("real_time_recency", "maybe", 'parameter "real_time_recency" requires a Boolean value'),
        ("real_time_recency", "o", 'parameter "real_time_recency" requires a Boolean value'),
        ("transaction_isolation", "chaos", 'invalid value for parameter "transaction_isolation"'),
        ("extra_float_digits", "4", "4 is outside the valid range for parameter"),
        ("extra_float_digits", "many", 'invalid value for parameter "extra_float_digits"'),
        ("server_version", "15", 'parameter "server_version" cannot be changed'),
        ("timezone", "Mars", 'invalid value for parameter "TimeZone"'),
    ],
)
def test_a_value_that_it_cannot_have_is_refused(name: str, given: str, message: str) -> None:
    with pytest.raises(InvalidParameter) as raised:
        value_for(name, (given,))
    assert raised.value.message.startswith(message)


def test_unknown_variables_and_lists_are_refused(shared: Place, session: Session) -> None:
    with pytest.raises(UndefinedObject, match="unrecognized configuration parameter"):
        shared.run("SET nonsense = 1", session)
    with pytest.raises(UndefinedObject):
        shared.run("SHOW nonsense", session)
    with pytest.raises(InvalidParameter, match="takes only one argument"):
        shared.run("SET statement_timeout = 1, 2", session)


@given(st.sampled_from(sorted(VARIABLES)), st.text(max_size=8))
def test_any_text_is_kept_or_refused(name: str, text: str) -> None:
    try:
        kept = value_for(name, (text,))
    except InvalidParameter:
        return
    assert value_for(name, (kept,)) == kept


@given(st.integers(0, 2**31 - 1))
def test_a_duration_is_shown_exactly(value: int) -> None:
    shown = value_for("statement_timeout", (str(value),))
    assert milliseconds(shown, "statement_timeout") == value


_OPS = st.lists(
    st.sampled_from(
        [
            "BEGIN",
            "COMMIT",
            "ROLLBACK",
            "SET application_name = x",
            "SET application_name = y",
            "SET LOCAL application_name = z",
            "RESET application_name",
            "SELECT nonsense",
        ]
    ),
    max_size=12,
)


@settings(max_examples=40, deadline=None)
@given(_OPS)
def test_variables_follow_a_plain_model_through_any_run_of_statements(ops: list[str]) -> None:
    """The model: a stack of what holds now, after a commit, after a rollback."""
    place = _model_place()
    session = Session()
    now = after_commit = after_rollback = ""
    begun = failed = False
    for op in ops:
        try:
            place.run(op, session)
            went = True
        except SqlError:
            went = False
        if op == "BEGIN":
            begun = begun or not failed
        elif op in ("COMMIT", "ROLLBACK"):
            if begun:
                now = after_commit if op == "COMMIT" and not failed else after_rollback
            begun = failed = False
            after_commit = after_rollback = now
        elif op == "SELECT nonsense":
            failed = begun
        elif not failed:
            assert went
            value = op.rpartition("= ")[2] if "=" in op else ""
            if "LOCAL" in op:
                now = value if begun else now
            else:
                now = after_commit = value
            if not begun:
                after_commit = after_rollback = now
        if not failed:
            assert session.get("application_name") == now


_PLACES: list[Place] = []


def _model_place() -> Place:
    return _PLACES[0]


@pytest.fixture(autouse=True)
def _remember(shared: Place) -> None:
    _PLACES[:] = [shared]


def test_a_result_is_no_larger_than_the_session_allows(shared: Place, session: Session) -> None:
    shared.run("SET max_query_result_size = '8B'", session)
    with pytest.raises(SqlError, match="result exceeds max size of 8 B") as raised:
        shared.run("SELECT generate_series(1, 1000)", session)
    assert raised.value.sqlstate == "53200"
    shared.run("CREATE TABLE large (a int); INSERT INTO large SELECT generate_series(1, 1000)")
    assert shared.run("INSERT INTO large SELECT * FROM large", session)[0].count == 1000


# --- timeouts and cancel --------------------------------------------------------------------------


def test_a_lock_is_waited_for_no_longer_than_the_statement_may_take(
    shared: Place, session: Session
) -> None:
    item = shared.env.catalog.state.by_name("public", "t")
    assert item is not None
    shared.run("SET statement_timeout = '50 ms'", session)
    with shared.coordinator.commits.locks.held({item.id: EXCLUSIVE}, Interrupt()):
        with pytest.raises(QueryCanceled, match="due to statement timeout"):
            shared.run("INSERT INTO t VALUES (5)", session)
        waiting = Session()
        canceller = once_somebody_waits(shared.coordinator.commits.locks, waiting.cancel)
        with pytest.raises(QueryCanceled, match="due to user request"):
            shared.run("UPDATE t SET a = 5", waiting)
        canceller.join()
    assert shared.rows("SELECT a FROM t") == [(1,)]


def test_loading_a_file_is_bounded_by_what_was_set_alone(
    shared: Place, session: Session, tmp_path: Path
) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("1\n" * 200_000)
    shared.run("CREATE TABLE loaded (a int)")
    copy, insert = parse_statements(f"COPY loaded FROM '{file}'; INSERT INTO loaded VALUES (1)")
    assert session.limit(lengthy=copy.lengthy) is None
    assert session.limit(lengthy=insert.lengthy) == 60.0
    shared.run("SET statement_timeout = '1 ms'", session)
    assert session.limit(lengthy=copy.lengthy) == session.limit(lengthy=insert.lengthy) == 0.001
    with pytest.raises(QueryCanceled, match="due to statement timeout"):
        shared.run(f"COPY loaded FROM '{file}'", session)
    shared.run("SET statement_timeout = 0", session)
    assert session.limit(lengthy=insert.lengthy) is None
    shared.run(f"COPY loaded FROM '{file}'", session)
    assert shared.rows("SELECT count(*) FROM loaded") == [(200_000,)]


def test_a_cancel_without_a_statement_does_nothing(shared: Place, session: Session) -> None:
    session.cancel()
    assert shared.rows("SELECT a FROM t", session) == [(1,)]


def test_an_idle_transaction_is_rolled_back_and_its_next_statement_told(
    shared: Place, session: Session
) -> None:
    shared.run("SET idle_in_transaction_session_timeout = '30 ms'", session)
    shared.run("BEGIN; INSERT INTO t VALUES (6)", session)
    _until(lambda: session._idle_ended)
    with pytest.raises(IdleInTransactionTimeout) as raised:
        shared.run("COMMIT", session)
    assert raised.value.sqlstate == "25P03"
    assert session.transaction is None
    assert shared.rows("SELECT a FROM t", session) == [(1,)]


def test_a_transaction_whose_time_is_over_at_once_is_rolled_back_too(
    shared: Place, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    def at_once(_at: float, call: Callable[[], None]) -> object:
        watching = threading.Thread(target=call)
        watching.start()
        watching.join(0.1)
        return object()

    shared.run(
        "SET idle_in_transaction_session_timeout = '30 ms'; SET statement_timeout = 0", session
    )
    with monkeypatch.context() as patch:
        patch.setattr(ALARMS, "add", at_once)
        shared.run("BEGIN", session)
    _until(lambda: session._idle_ended)
    with pytest.raises(IdleInTransactionTimeout):
        shared.run("COMMIT", session)


def test_the_rollback_of_an_idle_transaction_succeeds(shared: Place, session: Session) -> None:
    shared.run("SET idle_in_transaction_session_timeout = '30 ms'", session)
    shared.run("BEGIN; INSERT INTO t VALUES (6)", session)
    _until(lambda: session._idle_ended)
    assert shared.run("ROLLBACK;", session)[0].tag == "ROLLBACK"
    assert shared.rows("SELECT a FROM t", session) == [(1,)]


def test_an_idle_read_transaction_lets_go_of_what_it_holds_by_itself(
    shared: Place, session: Session
) -> None:
    shared.run("SET idle_in_transaction_session_timeout = '30 ms'", session)
    shared.run("BEGIN; SELECT * FROM t", session)
    transaction = session.transaction
    assert transaction is not None
    assert transaction.domain is not None
    item = shared.env.catalog.state.by_name("public", "t")
    assert item is not None
    held = shared.env.collections._get(item.id).holds
    _until(lambda: not held)
    with pytest.raises(IdleInTransactionTimeout):
        shared.run("SELECT * FROM t", session)


def test_a_busy_session_and_one_without_a_transaction_are_not_idle(
    shared: Place, session: Session
) -> None:
    shared.run("SET idle_in_transaction_session_timeout = '30 ms'", session)
    shared.run("SELECT 1", session)
    _alarms_until(0.03)
    shared.run("SELECT 1", session)
    shared.run("SET idle_in_transaction_session_timeout = 0", session)
    shared.run("BEGIN", session)
    _alarms_until(0.03)
    shared.run("COMMIT", session)
