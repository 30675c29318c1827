"""The kit without pytest: `run_kit` tries a backend by its URL and reports, as ``mzsql plugins test URL`` shows it.

Promise: nothing is touched but keys and timelines that begin with ``mzsql-kit-``, so it may run on a bucket or a database in use.
Afterwards the objects are removed; of each log its newest entry and of each timeline its row stay, as the protocols remove neither.
"""

from __future__ import annotations

import tempfile
import time
import traceback
import unittest
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec

from mzsql.location import (
    ContestedScheme,
    Registry,
    UnknownScheme,
    UsageError,
    default_registry,
    shown_url,
    split_url,
    without_secrets,
)
from mzsql.testing.cases import BLOB_CASES, CONSENSUS_CASES, ORACLE_CASES
from mzsql.testing.contract import Case, Level, Site, judge
from mzsql.testing.sites import PREFIX, BlobSite, ConsensusSite, OracleSite, fresh_prefix
from mzsql.testing.workloads import Kind

KIT_VERSION = 2
"""Raised when a case is added that a backend might fail."""

KINDS: tuple[Kind, ...] = get_args(Kind)
_CASES: dict[Kind, list[Case[Any]]] = {
    "blob": list(BLOB_CASES),
    "consensus": list(CONSENSUS_CASES),
    "oracle": list(ORACLE_CASES),
}
_FRAMES = 3


class CaseResult(msgspec.Struct, frozen=True):
    """What became of one case.

    Args:
        kind: of backend.
        name: of the case.
        text: what it requires.
        outcome: passed, failed, or skipped where it does not apply.
        seconds: how long it took.
        message: why it failed or was skipped; several lines, the last of a failure says how to run it again.
    """

    kind: Kind
    name: str
    text: str
    outcome: Literal["passed", "failed", "skipped"]
    seconds: float
    message: str = ""


class KitReport(msgspec.Struct, frozen=True):
    """What a run of the kit found.

    Args:
        kit_version: of the kit.
        url: of the backend, without secrets.
        level: how much was tried.
        seed: of what was chosen.
        kinds: what the URL's scheme serves, or those of it that were asked for.
        results: of every case, in the order in which they ran.
    """

    kit_version: int
    url: str
    level: Level
    seed: int
    kinds: tuple[Kind, ...]
    results: tuple[CaseResult, ...]

    @property
    def failed(self) -> tuple[CaseResult, ...]:
        """The cases that failed."""
        return tuple(one for one in self.results if one.outcome == "failed")

    @property
    def passed(self) -> bool:
        """Whether no case failed, and some case of each kind passed."""
        good = {one.kind for one in self.results if one.outcome == "passed"}
        return not self.failed and good == set(self.kinds)


def case_names(kind: Kind) -> tuple[str, ...]:
    """The names of the cases of ``kind``, in the order in which they run."""
    return tuple(one.name for one in _CASES[kind])


def run_kit(
    url: str,
    *,
    kinds: Collection[Kind] | None = None,
    level: Level = "quick",
    seed: int = 0,
    cases: Collection[str] | None = None,
    on_begin: Callable[[Kind, Case[Any]], None] | None = None,
    on_case: Callable[[CaseResult], None] | None = None,
    not_met: Mapping[str, str] | None = None,
    processes: bool | None = None,
    registry: Registry | None = None,
) -> KitReport:
    """Try everything the scheme of ``url`` serves.

    Args:
        url: of a store that is there and may be in use; two handles opened by it must be of one store.
        kinds: those to try; all that are served, without it.
        level: ``quick`` takes seconds on a local backend, ``full`` minutes.
        seed: of everything the cases choose; the schedule of threads and processes is the machine's.
        cases: names of the only ones to run, ``odd_keys`` or ``blob.odd_keys``.
        on_begin: told of each case before it runs.
        on_case: told of each result as it comes.
        not_met: cases known to fail, as in ``cases``, each with the reason: such a failure is a skip, and its being met a failure.
        processes: whether another process finds the same store by the URL; what the plugin says, without it.
        registry: of the plugins, this interpreter's by default. Worker processes find plugins by entry point only.

    Raises:
        UsageError: a case or a kind has no such name, or no case is of a kind that is served.
        UnknownScheme: no plugin, or several, serve the scheme, or none as one of ``kinds``.
        LocationError: the backend cannot be opened.
    """
    registry = registry or default_registry()
    not_met = not_met or {}
    _check_names([*(cases or ()), *not_met], kinds)
    served = served_kinds(registry, url, kinds)
    chosen = list(_chosen(served, cases))
    if not chosen:
        raise UsageError(
            f"none of the cases {', '.join(sorted(cases or ()))} is of {' or '.join(served)},"
            f" as which {shown_url(url)} opens"
        )
    if processes is None:
        processes = not _in_one_process(registry, url)
    results = []
    with tempfile.TemporaryDirectory(prefix="mzsql-kit-") as directory:
        for number, (kind, one) in enumerate(chosen):
            place = Path(directory) / str(number)
            place.mkdir()
            reasons = [reason for name, reason in not_met.items() if _means(name, kind, one)]
            site = site_of(
                kind,
                registry,
                url,
                directory=place,
                level=level,
                seed=seed,
                processes=processes,
            )
            if on_begin is not None:
                on_begin(kind, one)
            result = _tried(kind, one, site, {one.name: reasons[0]} if reasons else {})
            results.append(result)
            if on_case is not None:
                on_case(result)
    return KitReport(KIT_VERSION, shown_url(url), level, seed, served, tuple(results))


def _check_names(names: Collection[str], kinds: Collection[str] | None) -> None:
    for kind in kinds or ():
        if kind not in KINDS:
            raise UsageError(f"the kit knows no kind of backend {kind!r}: {', '.join(KINDS)}")
    for name in names:
        if not any(_means(name, kind, one) for kind in KINDS for one in _CASES[kind]):
            raise UsageError(
                f"the kit has no case {name!r}",
                hint="Write a case as odd_keys or blob.odd_keys; mzsql.testing.case_names(kind) lists them.",
            )


def _means(name: str, kind: Kind, one: Case[Any]) -> bool:
    return name in (one.name, f"{kind}.{one.name}")


def _chosen(
    kinds: Collection[Kind], cases: Collection[str] | None
) -> Iterator[tuple[Kind, Case[Any]]]:
    for kind in kinds:
        for one in _CASES[kind]:
            if cases is None or any(_means(name, kind, one) for name in cases):
                yield kind, one


def served_kinds(registry: Registry, url: str, kinds: Collection[Kind] | None) -> tuple[Kind, ...]:
    """The kinds of backend the URL opens, found by opening it.

    Raises:
        UnknownScheme: no installed plugin serves the URL's scheme for any of the kinds.
        LocationError: as `run_kit`.
    """
    found: list[Kind] = []
    refused: UnknownScheme | None = None
    for kind in KINDS:
        if kinds is not None and kind not in kinds:
            continue
        try:
            _open(registry, url, kind).close()
        except ContestedScheme:
            raise  # it is served, and left out it would be taken for tried
        except UnknownScheme as failure:
            refused = failure
            if kinds is not None:
                raise
        else:
            found.append(kind)
    if refused is not None and not found:
        scheme = split_url(url).scheme
        raise UnknownScheme(
            f"no installed plugin serves the scheme {scheme!r}",
            detail=refused.detail,
            hint=refused.hint,
        )
    return tuple(found)


def _open(registry: Registry, url: str, kind: Kind) -> Any:
    if kind == "blob":
        return registry.open_blob(url)
    if kind == "consensus":
        return registry.open_consensus(url)
    return registry.open_oracle(url, f"{PREFIX}opened", lambda: 0)


def _in_one_process(registry: Registry, url: str) -> bool:
    scheme = split_url(url).scheme
    serves = [one for plugin in registry.installed for one in plugin.serves]
    return any(one.one_process for one in serves if scheme in one.schemes)


def site_of(kind: Kind, registry: Registry, url: str, **rest: Any) -> Site:
    """A piece of the store at ``url`` below a prefix of its own; ``rest`` as `Site` takes it."""
    prefix = fresh_prefix()
    rest.setdefault("opens", lambda other: _open(registry, other, kind))
    if kind == "blob":
        return BlobSite(lambda: registry.open_blob(url), url=url, prefix=prefix, **rest)
    if kind == "consensus":
        return ConsensusSite(lambda: registry.open_consensus(url), url=url, prefix=prefix, **rest)
    return OracleSite(
        lambda timeline, now: registry.open_oracle(url, timeline, now),
        url=url,
        prefix=prefix,
        **rest,
    )


def _tried(kind: Kind, one: Case[Any], site: Site, not_met: Mapping[str, str]) -> CaseResult:
    start = time.monotonic()
    outcome: Literal["passed", "failed", "skipped"] = "passed"
    message = again = ""
    try:
        judge(one, site, not_met)
    except unittest.SkipTest as reason:
        outcome, message = "skipped", str(reason)
    except Exception as failure:  # whatever a stranger's backend raises is a result
        outcome = "failed"
        again = (
            f"Run it again: run_kit({shown_url(site.url or '')!r}, cases=['{kind}.{one.name}'],"
            f" level={site.level!r}, seed={site.seed})"
        )
        message = _told(failure)
    seconds = time.monotonic() - start
    shown = without_secrets(message, site.url or "")
    if shown != message:
        shown += "\nThe backend's own text shows a secret of the URL, hidden here."
    told = f"{shown}\n{again}" if again else shown
    return CaseResult(kind, one.name, one.text, outcome, seconds, told)


def _told(failure: Exception) -> str:
    notes = getattr(failure, "__notes__", [])
    if isinstance(failure, AssertionError):
        return "\n".join([str(failure), *notes])
    frames = traceback.extract_tb(failure.__traceback__)[-_FRAMES:]
    where = [f"  at {Path(each.filename).name}:{each.lineno}, {each.name}" for each in frames]
    return "\n".join([f"{type(failure).__name__}: {failure}", *notes, *where])
