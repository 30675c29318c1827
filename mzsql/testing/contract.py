"""What the contracts of all three protocols have in common: cases, the site a case works on, and how a case is run and judged.

A case is a plain function of a `Site`. The same cases make up the test classes (`BlobContract` and its like, under pytest) and
`run_kit` (without it). Nothing here needs pytest: a case that does not apply raises `unittest.SkipTest`, which pytest knows.
"""

from __future__ import annotations

import os
import sys
import threading
import unittest
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, TypeVar

import msgspec

Level = Literal["quick", "full"]
S = TypeVar("S", bound="Site")

_SWITCH_SECONDS = 2e-5

SEED_VARIABLE = "MZSQL_KIT_SEED"
"""The environment variable that sets the seed under pytest; 0 without it."""


class Site:
    """One isolated piece of the backend under test: what a case opens handles of. Each kind of backend has a subclass.

    Args:
        url: what other processes open, or `None` where there is no such URL.
        prefix: before every key and timeline, so that cases find nothing of each other.
        directory: a temporary directory of the case's own, for files of the kit.
        level: how much to try.
        seed: of everything the case chooses.
        processes: whether a handle another process opens by ``url`` is of the same store.
        opens: opens a handle by another URL than ``url``, where there is a way.
    """

    def __init__(
        self,
        *,
        url: str | None,
        prefix: str,
        directory: Path,
        level: Level = "quick",
        seed: int = 0,
        processes: bool = True,
        opens: Callable[[str], Any] | None = None,
    ) -> None:
        self.url = url
        self.prefix = prefix
        self.directory = directory
        self.level = level
        self.seed = seed
        self.processes = processes
        self.opens = opens
        self._handles: list[Any] = []

    def sized(self, quick: int, full: int) -> int:
        """``quick`` or ``full``, as the level says."""
        return full if self.level == "full" else quick

    def needs_processes(self) -> str:
        """The URL that other processes open; skips the case where there is none."""
        if not self.processes:
            skip("lives in one process's memory")
        if self.url is None:
            skip("not opened by a URL, which other processes could open too")
        return str(self.url)

    def _track(self, handle: Any) -> None:
        self._handles.append(handle)

    def clean_up(self) -> None:
        """Remove what the case left in the store; closes nothing."""

    def close(self) -> None:
        """Close every handle the case opened."""
        while self._handles:
            self._handles.pop().close()


class Case(msgspec.Struct, Generic[S], frozen=True):
    """One thing a backend must do.

    Args:
        name: lower case with underscores; the test's name without ``test_``.
        text: what is required, in a sentence.
        run: raises `AssertionError` where it is not met, `unittest.SkipTest` where it does not apply.
        level: the least level at which it runs.
    """

    name: str
    text: str
    run: Callable[[S], None]
    level: Level = "quick"


def case(
    cases: list[Case[S]], *, name: str = "", level: Level = "quick"
) -> Callable[[Callable[[S], None]], Callable[[S], None]]:
    """Put the decorated function among ``cases``, under ``name`` or its own, and with the first line of its docstring."""

    def register(run: Callable[[S], None]) -> Callable[[S], None]:
        text = (run.__doc__ or "").strip().partition("\n")[0]
        cases.append(Case(name or run.__name__, text, run, level))
        return run

    return register


def skip(reason: str) -> None:
    """End a case that does not apply here.

    Raises:
        unittest.SkipTest: always.
    """
    raise unittest.SkipTest(reason)


def run_together(works: Sequence[Callable[[], object]], *, eagerly: bool = True) -> None:
    """Run each in a thread of its own, all begun at one moment, and switched between often if ``eagerly``; the first failure is raised.

    Without that a thread on a backend in memory is done before the next one has begun.
    """
    barrier = threading.Barrier(len(works))

    def run(work: Callable[[], object]) -> None:
        barrier.wait()
        work()

    interval = sys.getswitchinterval()
    if eagerly:
        sys.setswitchinterval(_SWITCH_SECONDS)
    try:
        with ThreadPoolExecutor(len(works)) as pool:
            for one in [pool.submit(run, work) for work in works]:
                one.result()
    finally:
        sys.setswitchinterval(interval)


def run_case(one: Case[S], site: S) -> None:
    """Run the case, clean up and close; what goes wrong in cleaning up after a case that failed is not told."""
    if one.level == "full" and site.level == "quick":
        skip("runs at level full")
    try:
        one.run(site)
    except BaseException:
        _end(site, quietly=True)
        raise
    _end(site, quietly=False)


def _end(site: Site, *, quietly: bool) -> None:
    try:
        try:
            site.clean_up()
        finally:
            site.close()
    except Exception as failure:
        if not quietly:
            raise AssertionError(
                f"could not clean up after the case: {type(failure).__name__}: {failure}"
            ) from failure


def judge(one: Case[S], site: S, not_met: Mapping[str, str]) -> None:
    """Run the case, where ``not_met`` lists it the other way round: a failure skips it, and its being met fails it.

    Raises:
        unittest.SkipTest: the case failed and is listed, or does not apply.
        AssertionError: the case failed and is not listed, or is met although it is.
    """
    if one.name not in not_met:
        run_case(one, site)
        return
    reason = not_met[one.name]
    try:
        run_case(one, site)
    except unittest.SkipTest:
        raise
    except Exception as failure:
        raise unittest.SkipTest(f"not met, as known: {reason} ({failure})") from failure
    raise AssertionError(
        f"{one.name} is listed as not met ({reason}), yet it is met: remove it from the list"
    )


class Contract:
    """Says how the backend under test is opened and what it cannot do; pytest runs the cases as ``test_`` methods.

    ``place`` is a directory that is the same for all handles of one test and fresh for each test. A backend that lives elsewhere may
    answer the same URL for every place: the cases keep to keys and timelines of their own, so they find nothing of each other.
    """

    processes: ClassVar[bool] = True
    """Whether handles that different processes open by one URL are of one store. `False` only for what lives in a process's memory."""

    fresh: ClassVar[bool] = False
    """Whether each place is a store of its own, which nobody else uses: the cases then work at its root, not below a prefix."""

    level: ClassVar[Level] = "quick"
    """How much to try: ``quick`` for every day, ``full`` for a nightly run."""

    not_met: ClassVar[Mapping[str, str]] = {}
    """Cases known to fail, by name without ``test_``, each with the reason; one that passes after all fails the run."""

    _cases: ClassVar[list[Case[Any]]] = []

    def __init_subclass__(cls, **rest: Any) -> None:
        super().__init_subclass__(**rest)
        known = {one.name for one in cls._cases}
        for name in cls.not_met:
            if known and name not in known:
                raise TypeError(f"{cls.__name__}.not_met names no case of the kit: {name!r}")

    def url(self, place: Path) -> str:
        """The URL of the backend under test.

        Raises:
            AssertionError: the contract's author has not overridden this.
        """
        raise AssertionError(f"{type(self).__name__}.url must say where to open a backend: {place}")

    def site(self, place: Path, seed: int) -> Site:
        """What a case works on in ``place``; each kind of contract makes its own.

        Raises:
            AssertionError: the kind of contract has not overridden this.
        """
        raise AssertionError(f"{type(self).__name__} has no site for {place} and seed {seed}")

    def _url(self, place: Path) -> str | None:
        return None if type(self).url is Contract.url else self.url(place)

    def _run(self, one: Case[Any], place: Path) -> None:
        seed = int(os.environ.get(SEED_VARIABLE, "0"))
        try:
            judge(one, self.site(place, seed), self.not_met)
        except AssertionError as failure:
            failure.add_note(
                f"Run it again with {SEED_VARIABLE}={seed} and pytest -k"
                f" '{type(self).__name__} and test_{one.name}'"
            )
            raise


def add_tests(contract: type[Contract], cases: list[Case[Any]]) -> None:
    """Give ``contract`` a ``test_`` method for each case."""
    contract._cases = cases
    for one in cases:
        setattr(contract, f"test_{one.name}", _test_of(one))


def _test_of(one: Case[Any]) -> Callable[[Contract, Path], None]:
    def test(self: Contract, tmp_path: Path) -> None:
        self._run(one, tmp_path)

    test.__name__ = f"test_{one.name}"
    test.__doc__ = one.text
    return test
