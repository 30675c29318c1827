"""The kit catches every planted fault, each of its cases catches some, and it passes the same backends without one."""

from __future__ import annotations

from pathlib import Path

import kit_mutants
import pytest

from mzsql.location import Registry
from mzsql.testing import case_names, concurrent, consensus_cases, faulted, run_kit

_BY_CHANCE = {
    "processes",
    "killed_processes",
    "forked",
    "threads",
    "atomic_overwrites",
    "contention",
    "promises_between_threads",
    "faults",
}
"""Cases whose schedule is the machine's; a fault they are for may need another try."""
_TRIES = 25


@pytest.fixture
def registry(tmp_path, monkeypatch):
    """The mutants, here registered and in worker processes found by entry point."""
    package = tmp_path / "plugin" / "kit_mutants-1.0.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: kit_mutants\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text("[mzsql]\nmutants = kit_mutants\n")
    monkeypatch.syspath_prepend(Path(__file__).parent)
    monkeypatch.syspath_prepend(tmp_path / "plugin")
    monkeypatch.setattr(consensus_cases, "PATIENCE", 0.5)
    monkeypatch.setattr(consensus_cases, "RACE_SECONDS", 1.0)
    monkeypatch.setattr(concurrent, "WORKER_SECONDS", 12.0)
    monkeypatch.setattr(faulted, "STEP_SECONDS", 2.0)
    return Registry([("mutants", kit_mutants)], discover=False)


def _pairs():
    for mutant, cases in kit_mutants.CAUGHT_BY.items():
        for case in cases:
            yield mutant, case


def _params():
    for mutant, case in _pairs():
        # Those with processes take seconds each.
        marks = [pytest.mark.long] if case in ("processes", "killed_processes", "forked") else []
        yield pytest.param(mutant, case, marks=marks)


@pytest.mark.parametrize(("mutant", "case"), list(_params()))
def test_a_planted_fault_is_caught(mutant, case, registry, tmp_path):
    kind, _, name = mutant.partition(".")
    for seed in range(_TRIES if case in _BY_CHANCE else 1):
        place = tmp_path / f"place{seed}"
        place.mkdir()
        report = run_kit(
            f"mutant:{name}:{place}/store",
            kinds=[kind],
            cases=[case],
            seed=seed,
            registry=registry,
        )
        [result] = report.results
        assert result.outcome != "skipped", result.message
        if not report.passed:
            assert result.outcome == "failed"
            assert f"run_kit('mutant:{name}:" in result.message.splitlines()[-1]
            return
    pytest.fail(f"{mutant} passes {case}")


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("blob", "Sound"),
        pytest.param("blob", "SoundOnFiles", marks=pytest.mark.long),
        ("consensus", "Sound"),
        pytest.param("consensus", "SoundOnSqlite", marks=pytest.mark.long),
        ("oracle", "Sound"),
        pytest.param("oracle", "SoundOnSqlite", marks=pytest.mark.long),
    ],
)
def test_without_a_fault_the_kit_passes(kind, name, registry, tmp_path, monkeypatch):
    monkeypatch.undo()  # with the kit's own patience
    report = run_kit(
        f"mutant:{name}:{tmp_path}/store", kinds=[kind], processes=False, registry=registry
    )
    assert report.failed == ()
    assert report.passed


def test_a_fault_that_comes_and_goes_is_told_by_what_it_did(registry, tmp_path):
    """Not by the tool that could not make it come again."""
    report = run_kit(
        f"mutant:AcknowledgesWhatItDrops:{tmp_path}/store",
        kinds=["consensus"],
        cases=["state_machine", "long_log"],
        registry=registry,
    )
    told = {one.name: one.message for one in report.failed}
    assert told["state_machine"].startswith("now and then, and not each time")
    assert "AssertionError: compare_and_set expecting" in told["state_machine"]
    assert "of 'k' was refused: the newest is " in told["long_log"]


def test_each_case_catches_some_fault():
    """So no case is there that cannot fail."""
    caught = {(mutant.partition(".")[0], case) for mutant, case in _pairs()}
    wanted = {(k, case) for k in ("blob", "consensus", "oracle") for case in case_names(k)}
    assert caught == wanted
