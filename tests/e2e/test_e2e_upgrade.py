"""A newer version takes over from a running one: two wheels of different version numbers, in two virtual environments and processes."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from history_run import check_history, outcomes_of, transactions_of
from upgrade_kit import deploy, install, sql, variables

WORKER = Path(__file__).with_name("upgrade_worker.py")
SESSIONS = 4

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(tmp_path_factory.mktemp("old"), "0.1.0")


@pytest.fixture(scope="module")
def same(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A later version whose arrangements are as those of `old`."""
    return install(tmp_path_factory.mktemp("same"), "0.1.7")


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A later version that keeps arrangements in another format, and the catalog too, and that older programs may not follow."""
    return install(
        tmp_path_factory.mktemp("other"),
        "0.2.0",
        arrangement_format="0.2.0",
        catalog_step="return {k: v.upper() for k, v in entries.items() if k.startswith('comment/')}",
    )


COMMENT = "SELECT comment FROM mz_internal.mz_comments WHERE id LIKE 'u%'"


class Sessions:
    """A process of one version with four sessions at work."""

    def __init__(self, commands: Path, env: str, generation: int, first: int, folder: Path) -> None:
        self.numbers = range(first, first + SESSIONS)
        self.folder = folder
        self.errors = folder / f"{first}.err"
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen(
                [commands / "python", WORKER, env, str(generation), str(first), str(folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=variables(),
            )

    def await_ready(self) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n", self.errors.read_text()

    def logs(self) -> list[Path]:
        return [self.folder / f"{n}.jsonl" for n in self.numbers]

    def done(self, *, writes: bool) -> int:
        """How many transactions have succeeded so far, of those that write or of the others."""
        return sum(outcomes_of(log)["ok", writes] for log in self.logs())

    def end(self) -> str:
        """Have it end; what it has said at last."""
        said, _ = self.process.communicate(timeout=500)
        assert self.process.returncode == 0, self.errors.read_text()
        return said

    def failures(self) -> list[str]:
        """What failed in a way in which nothing may fail that an upgrade goes on beside."""
        fine = ("fenced by ", "could not serialize", "not in charge yet")
        lines = self.errors.read_text().splitlines()
        return [
            line
            for line in lines
            if ("Error" in line or "failed" in line or "cannot" in line or "could not" in line)
            and not any(one in line for one in fine)
        ]


def until(done: Callable[[], bool], what: Callable[[], str], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, what()
        time.sleep(0.1)


@contextlib.contextmanager
def at_work(*processes: Sessions) -> Iterator[None]:
    try:
        yield
    finally:
        for one in processes:
            one.process.kill()
            one.process.wait()


def upgrade(env: str, folder: Path, old: Path, new: Path) -> tuple[str, str, str]:
    """An upgrade while four sessions of each version work; status before, status while the newer waits, and what that says at last."""
    running = Sessions(old, env, 0, 1, folder)
    with at_work(running):
        running.await_ready()
        until(lambda: running.done(writes=True) >= 20, running.errors.read_text)
        _, before = deploy(old, "status", env)
        waiting = Sessions(new, env, 1, 1 + SESSIONS, folder)
        with at_work(waiting):
            waiting.await_ready()
            until(lambda: waiting.done(writes=False) >= 5, waiting.errors.read_text)
            assert waiting.done(writes=True) == 0
            status = ""

            def caught_up() -> bool:
                nonlocal status
                _, status = deploy(new, "status", env)
                return status.count(": caught up:") == 2

            until(caught_up, lambda: status)
            written = running.done(writes=True)
            until(lambda: running.done(writes=True) > written + 5, running.errors.read_text)
            assert running.process.poll() is None, running.errors.read_text()
            code, said = deploy(new, "promote", env, "--generation", "1")
            assert code == 0, said
            running.end()
            until(lambda: waiting.done(writes=True) >= 20, waiting.errors.read_text)
            last = waiting.end()
        assert check_history(transactions_of([*running.logs(), *waiting.logs()])) >= 40
        assert running.failures() == []
        assert waiting.failures() == []
    return before, status, last


def test_sessions_write_and_read_through_an_upgrade_that_goes_on_from_all_that_there_is(
    tmp_path: Path, old: Path, same: Path
) -> None:
    env = str(tmp_path / "env")
    before, status, last = upgrade(env, tmp_path, old, same)
    assert "generation 0 is in charge" in before
    assert "waits" not in before
    assert "generation 1 (mzsql 0.1.7) waits, prepared by process" in status
    assert "materialize.public.grouped_x: caught up: goes on from the arrangements" in status
    assert "materialize.public.plain_y: caught up: has no arrangements" in status
    assert last == "hydrated 0\n"


def test_sessions_write_and_read_through_an_upgrade_that_hydrates_beside(
    tmp_path: Path, old: Path, other: Path
) -> None:
    env = str(tmp_path / "env")
    sql(old, env, "CREATE TABLE told (a int); COMMENT ON TABLE told IS 'as it was'")
    _, status, last = upgrade(env, tmp_path, old, other)
    assert "AS IT WAS" in sql(other, env, COMMENT), "the catalog was migrated"
    assert "generation 1 (mzsql 0.2.0) waits, prepared by process" in status
    assert (
        "grouped_x: caught up: its plan or its format is another: hydrated, and up to date"
        in status
    )
    assert last == "hydrated 0\n", "what was hydrated before the promotion is not hydrated again"
    code, said = deploy(other, "discard", env)
    assert code == 1
    assert "mzsql 0.2.0 is in charge" in said
    # The older program finds what it must not touch, and touches nothing.
    code, said = deploy(old, "status", env)
    assert code == 1
    assert "was written by mzsql 0.2.0, which this one, 0.1.0, must not touch" in said
    assert "Upgrade mzsql to 0.2.0 or later" in said


def test_a_newer_version_that_is_not_promoted_leaves_nothing_behind(
    tmp_path: Path, old: Path, other: Path
) -> None:
    env = str(tmp_path / "env")
    sql(old, env, "CREATE TABLE told (a int); COMMENT ON TABLE told IS 'as it was'")
    running = Sessions(old, env, 0, 1, tmp_path)
    with at_work(running):
        running.await_ready()
        until(lambda: running.done(writes=True) >= 5, running.errors.read_text)
        waiting = Sessions(other, env, 1, 1 + SESSIONS, tmp_path)
        with at_work(waiting):
            waiting.await_ready()
            until(
                lambda: deploy(other, "status", env)[1].count(": caught up:") == 2,
                waiting.errors.read_text,
            )
            assert "as it was" in sql(old, env, COMMENT), "nothing was migrated before a promotion"
            code, said = deploy(other, "discard", env)
            assert (code, "still waits for deploy generation 1" in said) == (1, True), said
            waiting.end()
        code, said = deploy(old, "discard", env)
        assert (code, "mzsql 0.1.0 is in charge" in said) == (1, True), said
        code, said = deploy(other, "discard", env)
        assert (code, said) == (0, "2 plans and 1 arrangements of mzsql 0.2.0 removed\n")
        written = running.done(writes=True)
        until(lambda: running.done(writes=True) > written + 10, running.errors.read_text)
        running.end()
    assert running.failures() == []
    assert check_history(transactions_of(running.logs())) >= 15
