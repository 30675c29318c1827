"""Properties computed at first use: once for each object, and no object waits for another one's."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from mzsql.repr.lazy import lazy_property


class Counted:
    def __init__(self) -> None:
        self.calls = 0

    @lazy_property
    def made(self) -> list[int]:
        """What is made."""
        self.calls += 1
        return [self.calls]


def test_it_is_computed_at_its_first_use_and_kept() -> None:
    one, other = Counted(), Counted()
    assert one.calls == 0
    assert one.made is one.made
    assert (one.made, one.calls, other.calls) == ([1], 1, 0)
    assert Counted.made.__doc__ == "What is made."


def test_an_object_does_not_wait_for_another_one_s_computation() -> None:
    begun, other_made = threading.Event(), threading.Event()

    class Waiting:
        def __init__(self, *, waits: bool) -> None:
            self._waits = waits

        @lazy_property
        def made(self) -> bool:
            if not self._waits:
                return True
            begun.set()
            return other_made.wait(60)

    with ThreadPoolExecutor(2) as threads:
        slow = threads.submit(lambda: Waiting(waits=True).made)
        assert begun.wait(60)
        quick = threads.submit(lambda: Waiting(waits=False).made)
        assert quick.result(60)
        other_made.set()
        assert slow.result(60)


def test_threads_that_compute_at_once_get_one_result() -> None:
    together = threading.Barrier(2)

    class Made:
        @lazy_property
        def made(self) -> object:
            together.wait(60)
            return object()

    one = Made()
    with ThreadPoolExecutor(2) as threads:
        first, second = (threads.submit(lambda: one.made) for _ in range(2))
    assert first.result() is second.result() is one.made
