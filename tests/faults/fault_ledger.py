"""What every call did: how long it took, and how it failed; and whether that is as promised.

Promise: `Ledger.check` fails where a call outlasted its timeout by more than `GRACE`, where an error of a backend does not name the backend
and its URL, and where a password or secret stands in an error, in what led to it, or in what was logged. The grace has room for a
backend's last attempt (a few seconds by the URLs of these tests) and for a machine under load: this looks for hangs and times nothing.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from mzsql.location import LocationError
from mzsql.repr.errors import SqlError

T = TypeVar("T")

GRACE = 10.0
_CONTENTION = ("others were faster each time", "so fast does it change")
LOGGERS = ("mzsql", "mzsql_postgres", "mzsql_s3", "psycopg")


class Outcome(Generic[T]):
    """What a call answered, or its error."""

    def __init__(self, value: T | None, error: Exception | None) -> None:
        self.value = value
        self.error = error

    @property
    def ok(self) -> bool:
        """Whether it succeeded."""
        return self.error is None

    def get(self) -> T:
        """The answer of a call that succeeded."""
        assert self.error is None
        return self.value  # type: ignore[return-value]


def texts_of(failure: BaseException) -> str:
    """All that an error says, to whoever prints it in whatever way, with all that led to it."""
    found = []
    seen: set[int] = set()
    queue: list[BaseException | None] = [failure]
    while queue:
        one = queue.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        found += [str(one), repr(one), repr(one.args), repr(vars(one))]
        queue += [one.__cause__, one.__context__]
    found += traceback.format_exception(failure)
    return "\n".join(found)


class _Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []
        self.setFormatter(logging.Formatter("%(name)s %(levelname)s %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@contextlib.contextmanager
def logged() -> Iterator[list[str]]:
    """What mzsql logs meanwhile, down to the last detail."""
    kept = _Kept()
    loggers = [logging.getLogger(name) for name in LOGGERS]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.addHandler(kept)
        logger.setLevel(logging.DEBUG)
        # What else keeps records keeps what they are about: psycopg's connections, whose sockets would stay open.
        logger.propagate = False
    try:
        yield kept.lines
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.removeHandler(kept)
            logger.setLevel(level)
            logger.propagate = True


class Ledger:
    """The calls of all threads of a run.

    Args:
        urls: as shown to people; an error of a backend names one of them.
        secrets: what stands nowhere.
        log: lines logged so far.
    """

    def __init__(self, urls: list[str], secrets: list[str], log: list[str]) -> None:
        self._urls = urls
        self._secrets = secrets
        self._log = log
        self._lock = threading.Lock()
        self._late: list[str] = []
        self.failed: list[tuple[str, Exception]] = []
        self.done: Counter[str] = Counter()
        self.bugs: list[BaseException] = []
        self.stopping = threading.Event()
        self._threads: list[threading.Thread] = []

    def call(
        self,
        name: str,
        timeout: float,
        act: Callable[[], T],
        *,
        expected: tuple[type[Exception], ...] = (),
    ) -> Outcome[T]:
        """``act()``, which should take ``timeout`` seconds at most; an ``expected`` error is its answer, no failure."""
        began = time.monotonic()
        try:
            return self._ended(name, began, timeout, Outcome(act(), None))
        except expected as answer:
            return self._ended(name, began, timeout, Outcome(None, answer))
        except Exception as failure:
            if not self._typed(failure):
                raise
            with self._lock:
                self.failed.append((name, failure))
            return self._ended(name, began, timeout, Outcome(None, failure))

    def _typed(self, failure: Exception) -> bool:
        return isinstance(failure, SqlError) or hasattr(failure, "sqlstate")

    def _ended(self, name: str, began: float, timeout: float, outcome: Outcome[T]) -> Outcome[T]:
        took = time.monotonic() - began
        with self._lock:
            if outcome.ok:
                self.done[name] += 1
            if took > timeout + GRACE:
                self._late.append(
                    f"{name} took {took:.1f} s of {timeout:g} s and ended with {outcome.error!r}"
                )
        return outcome

    def run(self, name: str, turn: Callable[[], None]) -> None:
        """Call ``turn`` again and again on a thread, until the run stops."""

        def loop() -> None:
            try:
                while not self.stopping.is_set():
                    turn()
            except BaseException as bug:
                self.bugs.append(bug)

        thread = threading.Thread(target=loop, name=name)
        self._threads.append(thread)
        thread.start()

    def stop(self, seconds: float) -> None:
        """End the threads; each is done with its call within so many seconds."""
        self.stopping.set()
        end = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
        hanging = [thread.name for thread in self._threads if thread.is_alive()]
        assert not hanging, f"still in a call after {seconds:g} s: {hanging}"

    def raise_bug(self) -> None:
        """Raise what a thread met that it should not have."""
        if self.bugs:
            raise self.bugs[0]

    def check(self) -> None:
        """See the module's text."""
        self.raise_bug()
        assert not self._late, "\n".join(self._late)
        for name, failure in self.failed:
            said = texts_of(failure)
            for secret in self._secrets:
                assert secret not in said, f"{name}: a secret stands in {said}"
            if any(text in str(failure) for text in _CONTENTION):
                continue  # no backend failed
            if isinstance(failure, LocationError) or getattr(failure, "sqlstate", "") == "58030":
                named = any(url in str(failure) for url in self._urls)
                assert named, f"{name}: an error that does not say where: {failure}"
        log = "\n".join(self._log)
        for secret in self._secrets:
            assert secret not in log, "a secret was logged"
