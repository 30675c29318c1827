"""Histories of operations: recorded to files as they happen, by threads and processes, and read back for `check_history`.

Promise: the call is in the file before the operation begins and the return after it ended, so a process that is killed leaves an
operation of unknown outcome and no wrong one. Times are of the monotonic clock, which all processes of a machine share. An operation
that raised `Determinate` did not happen and is left out; one that raised `Indeterminate` has an unknown outcome; any other exception
but the usage errors a workload expects is `broken`, as a backend must not raise it.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Collection
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from mzsql.location import Determinate, Indeterminate, UsageError
from mzsql.testing.linearizability import Operation
from mzsql.testing.models import REFUSED

NOTHING = object()
"""What `Recorder.record` answers for an operation that failed."""

_READS = frozenset({"get", "list", "scan", "head", "wait", "read_ts", "peek_write_ts"})


class History(msgspec.Struct):
    """What was read back.

    Args:
        operations: without those that surely did not happen, and without reads of unknown outcome, which nobody can notice.
        broken: exceptions no backend may raise, each with its operation, in a sentence.
        begun: how many operations began.
        acknowledged: how many of them returned.
        refusals: what those said that did not, each message and how often.
    """

    operations: list[Operation] = []
    broken: list[str] = []
    begun: int = 0
    acknowledged: int = 0
    refusals: Counter[str] = msgspec.field(default_factory=Counter)

    def commonest(self, shown: int = 3) -> str:
        """The refusals that came most often, for a person."""
        return "".join(f"\n  {n} times {text}" for text, n in self.refusals.most_common(shown))


class Recorder:
    """Writes one thread's operations to ``path``."""

    def __init__(self, path: Path, process: int) -> None:
        self.process = process
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        self._number = 0

    def record(
        self,
        name: str,
        key: str,
        args: tuple[Any, ...],
        act: Callable[[], Any],
        shape: Callable[[Any], Any] = lambda result: result,
        *,
        refusable: bool = False,
    ) -> Any:
        """``shape(act())``, recorded; `NOTHING` where it failed.

        Args:
            name: the operation, as its model knows it.
            key: what it is done to.
            args: what the model is told.
            act: the operation.
            shape: of its result what the model is told, made of what JSON has.
            refusable: whether `UsageError` is an answer, recorded as `REFUSED`.
        """
        self._number += 1
        self._write("call", name, key, args)
        try:
            result = shape(act())
        except Determinate as failure:
            return self._failed("determinate", failure)
        except Indeterminate as failure:
            return self._failed("indeterminate", failure)
        except UsageError as failure:
            if not refusable:
                return self._failed("broken", failure)
            result = REFUSED
        except Exception as failure:  # whatever a stranger's backend raises is told, not passed on
            return self._failed("broken", failure)
        self._write("return", result)
        return result

    def _failed(self, how: str, failure: Exception) -> object:
        self._write("failed", how, f"{type(failure).__name__}: {failure}")
        return NOTHING

    def _write(self, event: str, *what: Any) -> None:
        line = msgspec.json.encode([event, self._number, time.monotonic_ns(), *what])
        os.write(self._file, line + b"\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._file)


def calls_begun(path: Path) -> int:
    """How many calls a file under way has."""
    return path.read_bytes().count(b'["call"') if path.exists() else 0


def load_history(files: Collection[tuple[int, Path]], keys: Collection[str]) -> History:
    """The operations of all files, each given with its process; a listing becomes a look at each of ``keys``."""
    history = History()
    for process, path in files:
        if path.exists():
            _load(history, process, path, keys)
    return history


def _load(history: History, process: int, path: Path, keys: Collection[str]) -> None:
    calls: dict[int, list[Any]] = {}
    ends: dict[int, list[Any]] = {}
    for line in path.read_bytes().splitlines(keepends=True):
        if not line.endswith(b"\n"):
            break  # the process was killed while it wrote this
        event: list[Any] = msgspec.json.decode(line)
        (calls if event[0] == "call" else ends)[event[1]] = event
    history.begun += len(calls)
    for number, (_, _, begun, name, key, args) in calls.items():
        end = ends.get(number)
        if end is not None and end[0] == "failed":
            history.refusals[end[4]] += 1
        pending = Operation(process, key, name, tuple(args), begun)
        if end is not None and end[0] == "return":
            history.acknowledged += 1
            known = msgspec.structs.replace(pending, end=end[2], result=end[3])
            history.operations += _looks(known, keys)
        elif end is not None and end[3] == "broken":
            history.broken.append(f"{pending} raised {end[4]}")
        elif (end is None or end[3] == "indeterminate") and name not in _READS:
            history.operations += _looks(pending, keys)


def _looks(one: Operation, keys: Collection[str]) -> list[Operation]:
    """The operations of the model that one of a Blob stands for."""
    if one.name == "delete":
        removal = msgspec.structs.replace(one, name="remove", result=None)
        look = msgspec.structs.replace(one, name="size")
        return [removal, look] if one.known else [removal]
    if one.name == "list":
        return [
            msgspec.structs.replace(one, name="size", key=key, result=one.result.get(key))
            for key in keys
        ]
    return [one]
