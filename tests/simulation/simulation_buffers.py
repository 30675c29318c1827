"""An actor that writes through a buffer, as sources and dataflows do.

What it pushed is kept in a list of its own, and each append of the buffer is taken for an attempt to commit just the pushes of its
stretch of time: a row that the buffer loses, repeats or moves makes what is read differ from the truth. What a buffer says to be durable
must be committed at that moment.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from simulation_actor import Actor, definite_updates, drawn_row, drawn_updates
from simulation_truth import Attempt, Update
from simulation_world import Violation

from mzsql.location import Determinate, Indeterminate
from mzsql.persist import (
    BufferedWriter,
    ExpiredHandle,
    InvalidBounds,
    NewerVersion,
    UpperMismatch,
)
from mzsql.repr.frontier import Frontier, less_equal, less_than

_TRIES = 4


class Buffering(Actor):
    """Pushes, flushes, closes; begins again where another writer was first."""

    _buffer: BufferedWriter | None = None

    def __call__(self) -> None:
        """All its steps; nothing is under way any more afterwards."""
        super().__call__()
        for _ in range(_TRIES):
            if self._buffer is None:
                return
            with self.judged(), self._pushing():
                self._close(self._buffer)
        buffer, self._buffer = self._buffer, None
        if buffer is not None:
            buffer.expire()
            self._joined(buffer)

    def step(self) -> None:
        """One call to the buffer."""
        buffer = self._buffer or self._opened()
        if buffer is None:
            return
        acts = (self._push,) * 12 + (self._flush,) * 4 + (self._misuse, self._close, self._expire)
        with self._pushing():
            self.rng.choice(acts)(buffer)

    def _opened(self) -> BufferedWriter | None:
        """A buffer that begins at the shard's upper: flushed by a thread of its own, or by the calls that find it due."""
        rng, writer = self.rng, self.client.open_writer(
            self.shard.shard_id, self.shard.schema, key=self.shard.key, timeout=self.timeout
        )  # fmt: skip
        self._writer = writer
        lower = self.current_upper(writer)
        if lower is None:
            return None
        self._pushed: list[Update] = []
        self._upper: Frontier = lower
        self._committed: Frontier = lower
        self._given_up = False
        self._in_doubt = False
        writer.compare_and_append = self._watched(writer.compare_and_append)
        threads, context = rng.random() < 0.5, writer.context
        msgspec.structs.force_setattr(context, "threads", threads)
        try:
            self._buffer = writer.buffered(
                upper=lower,
                flush_interval=rng.choice((0.05, 1.0, 20.0)),
                flush_bytes=rng.choice((1, 60, 400, 1 << 20)),
            )
        finally:
            msgspec.structs.force_setattr(context, "threads", False)
        self.count("buffer with a thread" if threads else "buffer without a thread")
        return self._buffer

    def _watched(self, append: Callable[..., None]) -> Callable[..., None]:
        """The handle's append, each call of which is an attempt to commit what was pushed in its stretch of time."""

        def compare_and_append(
            updates: Any, *, expected_upper: Frontier, new_upper: Frontier, timeout: float
        ) -> None:
            wanted = [
                u for u in self._pushed
                if less_equal(expected_upper, u[1]) and less_than(u[1], new_upper)
            ]  # fmt: skip
            attempt = self.attempt("buffered", expected_upper, new_upper, wanted)
            raised: list[BaseException] = []

            def act() -> None:
                try:
                    append(
                        updates,
                        expected_upper=expected_upper,
                        new_upper=new_upper,
                        timeout=timeout,
                    )
                except BaseException as failure:
                    raised.append(failure)
                    raise

            try:
                if self._in_doubt:
                    self.truth.fail("a buffer appends again after an append that may have happened")
                outcome = self.attempted(attempt, act)
            except Violation as violation:
                self.run.violations.append(violation)  # the buffer takes it for its own error
                raise
            if outcome == "done":
                self._committed = new_upper
            self._in_doubt = outcome == "maybe"
            if raised:
                raise raised[0]

        return compare_and_append

    @contextlib.contextmanager
    def _pushing(self) -> Iterator[None]:
        """What calls to a buffer may raise."""
        try:
            yield
        except Violation:
            raise
        except Exception as failure:
            buffer = self._buffer
            if buffer is not None and (buffer._broken or buffer._closed):
                self._over(buffer, failure)
            elif isinstance(failure, UpperMismatch | Indeterminate):
                self.truth.fail(f"a buffer would go on after {failure!r}")
            lapsed = self._writer is None
            given_up = isinstance(failure, ExpiredHandle) and (self._given_up or lapsed)
            if not isinstance(failure, UpperMismatch) and not given_up:
                raise  # which is judged as that of any call

    def _over(self, buffer: BufferedWriter, failure: Exception) -> None:
        """The buffer is of no more use, and must say so to everybody."""
        self._buffer = None
        said = (type(failure), type(buffer._failure or failure), ExpiredHandle)
        for again in (lambda: buffer.push(None, upper=self._upper), buffer.flush):
            try:
                again()
            except said:
                continue
            self.truth.fail(f"a buffer went on after {failure!r}")
        with contextlib.suppress(*said):
            buffer.close()
        self._joined(buffer)
        self.count("buffer broken")

    def _joined(self, buffer: BufferedWriter) -> None:
        if buffer._thread is not None:
            buffer._thread.join()

    # What it does.

    def _push(self, buffer: BufferedWriter) -> None:
        rng, lower = self.rng, self._upper
        assert lower is not None
        upper = lower + rng.randint(0, 3)
        updates: list[Update] = []
        if upper > lower and self.shard.kind == "definite":
            updates = definite_updates(self.run.plan.seed, lower, upper)
        elif upper > lower:
            updates = drawn_updates(rng, self.shard.kind, lower, upper, rng.choice((0, 1, 2, 5)))
        given = self.shard.by_worker(updates) if updates or rng.random() < 0.5 else None
        # A thread may append them before the call has returned.
        before, self._pushed = self._pushed, [*self._pushed, *updates]
        try:
            buffer.push(given, upper=upper, timeout=self.timeout)
        except BaseException:
            self._pushed = before  # a call that raises has taken nothing
            raise
        self._upper = upper
        if buffer.upper != upper:
            self.truth.fail(f"pushed up to {upper}, and the buffer is at {buffer.upper}")
        self._check_durable(buffer)
        self.count("pushed")

    def _flush(self, buffer: BufferedWriter) -> None:
        buffer.flush(timeout=self.timeout)
        self._acknowledged(buffer)
        self.count("flushed")

    def _close(self, buffer: BufferedWriter) -> None:
        buffer.close(timeout=self.timeout)
        self._buffer = None
        self._acknowledged(buffer)
        try:
            buffer.push(None, upper=self._upper)
        except ExpiredHandle:
            self.count("buffer closed")
        else:
            self.truth.fail("a closed buffer took a push")

    def _expire(self, buffer: BufferedWriter) -> None:
        """The handle is given up under the buffer, which is of no more use then."""
        if self._writer is None:
            return  # its lease has run out, which the next push is told
        task = self.world.current
        assert task is not None
        task.doing = Attempt("expire", 0, 0, [], expires=True)
        self._given_up = True  # even if the call fails
        try:
            self._writer.expire(timeout=self.timeout)
        finally:
            task.doing = None
        try:
            buffer.push(None, upper=self._upper)
        except (ExpiredHandle, Determinate, Indeterminate, UpperMismatch, NewerVersion):
            self._buffer = None
        else:
            self.truth.fail("a buffer whose handle has expired took a push")
        self._joined(buffer)
        self.count("buffer expired")

    def _misuse(self, buffer: BufferedWriter) -> None:
        """A push that must be refused, and take nothing."""
        lower = self._upper
        assert lower is not None
        late = self.shard.by_worker([(drawn_row(self.rng, self.shard.kind), lower + 2, 1)])
        given, upper = self.rng.choice([(late, lower + 2), (None, lower - 1), (late, lower)])
        try:
            buffer.push(given, upper=upper, timeout=self.timeout)
        except InvalidBounds:
            self.count("misuse of a buffer refused")
        else:
            self.truth.fail("a buffer took updates outside of their bounds")

    # What is checked.

    def _acknowledged(self, buffer: BufferedWriter) -> None:
        """All pushes are said to be durable."""
        if buffer.durable_upper != self._upper:
            self.truth.fail(f"flushed up to {self._upper}, durable up to {buffer.durable_upper}")
        self._check_durable(buffer)

    def _check_durable(self, buffer: BufferedWriter) -> None:
        """What is said to be durable is committed."""
        durable = buffer.durable_upper
        if not less_equal(durable, self._committed) or not less_equal(durable, self.truth.upper):
            self.truth.fail(f"durable up to {durable}, committed up to {self._committed}")


__all__ = ["Buffering"]
