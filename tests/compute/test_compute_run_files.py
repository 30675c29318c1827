"""What is kept of a trace over a restart: the same updates, or nothing, whatever became of the files."""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from mzsql.compute.replica.arrangements import hot as hot_traces
from mzsql.compute.replica.arrangements import run_files
from mzsql.compute.replica.arrangements import trace as traces
from mzsql.compute.replica.arrangements.hot import Hot
from mzsql.compute.replica.arrangements.run_files import (
    HotDirectory,
    RunFiles,
    remove_old,
    remove_others,
)
from mzsql.compute.replica.arrangements.runs import Run, key_hashes
from mzsql.compute.replica.arrangements.trace import Trace
from mzsql.persist.consolidate import consolidate

_SCHEMA = pa.schema(
    [
        pa.field("c0", pa.int64()),
        pa.field("c1", pa.string()),
        pa.field("mz_time", pa.int64()),
        pa.field("mz_diff", pa.int64()),
    ]
)


def _updates(begin: int, count: int, time: int) -> pa.Table:
    keys = np.arange(begin, begin + count) % 50
    texts = [None if key % 7 == 0 else f"t{key}" for key in keys]
    columns = [keys, texts, np.full(count, time), np.ones(count, np.int64)]
    return pa.table(dict(zip(_SCHEMA.names, columns, strict=True)), schema=_SCHEMA)


def _no_hasher(_: pa.Table) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    raise AssertionError("all columns are hashed here")


def _trace(files: RunFiles, since: int = 0) -> Trace:
    return Trace(_SCHEMA, 1, since, hasher=_no_hasher, consolidated=consolidate, files=files)


def _rows(trace: Trace, as_of: int) -> list[tuple[object, ...]]:
    keys = pa.table({"c0": pa.array(range(50), pa.int64())})
    found = trace.find(np.unique(key_hashes(keys, _no_hasher)), 1, as_of).rows()
    return sorted((tuple(row.values()) for row in found.to_pylist()), key=repr)


def _filled(files: RunFiles, monkeypatch: pytest.MonkeyPatch) -> Trace:
    """A trace with runs in memory and in files."""
    monkeypatch.setattr(traces, "MAPPED_BYTES", 2_000)
    made = _trace(files)
    made.add(_updates(0, 400, 1), 0)
    made.add(_updates(7, 3, 2), 0)
    made.add(_updates(9, 300, 3), 0)
    assert {run.mapped for run in made.runs} == {True, False}
    return made


def _opened(directory: Path | None, signature: str = "s") -> RunFiles:
    scratch = Path(gettempdir()) if directory is None else directory.parent
    return RunFiles(directory, lambda: scratch, signature)


def test_what_is_kept_is_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = tmp_path / "shard"
    made = _filled(_opened(there), monkeypatch)
    made_files = _opened(there)  # another life, in which the large runs are nobody's
    assert made_files.span is None
    assert not list(there.glob("*.rows"))
    made_files.keep(made.runs, 1, 4)

    again = _opened(there)
    assert again.span == (1, 4)
    found = again.load()
    assert found is not None
    assert (found.since, found.upper) == (1, 4)
    loaded = _trace(again, 1)
    loaded.take(found.runs)
    for as_of in (1, 2, 3, 9):
        assert _rows(loaded, as_of) == _rows(made, as_of)
    # What was loaded is kept again without being written again.
    before = {path: path.stat().st_mtime_ns for path in there.glob("*.rows")}
    loaded.add(_updates(0, 2, 5), 1)
    again.keep(loaded.runs, 1, 6)
    after = {path: path.stat().st_mtime_ns for path in there.glob("*.rows")}
    assert before.items() < after.items()
    assert _opened(there).span == (1, 6)


def test_files_are_their_owners_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = HotDirectory(tmp_path / "a" / "b", lambda: tmp_path).of("shard", "s")
    files.keep(_filled(files, monkeypatch).runs, 0, 4)
    modes = {path.stat().st_mode & 0o077 for path in (tmp_path / "a").rglob("*")}
    assert modes == {0}


def test_what_was_merged_goes_when_the_rest_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = tmp_path / "shard"
    files = _opened(there)
    made = _filled(files, monkeypatch)
    files.keep(made.runs, 0, 4)
    held, rows = made.runs, _rows(made, 3)
    one = made.merged(made.runs, 0)
    assert one is not None
    merged = _trace(files)
    merged.take([one])
    files.keep(merged.runs, 0, 4)
    # Whoever still reads the ones before does so undisturbed, and can have them kept again.
    before = _trace(files)
    before.take(held)
    assert _rows(before, 3) == rows
    files.keep(held, 0, 4)
    files.keep(merged.runs, 0, 4)
    assert len(list(there.glob("*.rows"))) == 1 + len(held)
    del held, before, made
    gc.collect()
    assert len(list(there.glob("*.rows"))) == 1
    found = _opened(there).load()
    assert found is not None
    assert len(found.runs) == 1


def test_files_of_what_is_not_kept_go_with_their_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often the runs of few, wide updates are made anew."""
    there = tmp_path / "shard"
    hot = Hot(9, lambda: 0.0, files=_opened(there))
    for _ in range(4):
        made = _filled(hot.files, monkeypatch)
        hot.cool()
        hot.give(made, 9)
        hot.keep(0)
        del made
        gc.collect()
        assert len(list(there.glob("*.rows"))) == 2
    assert hot.files.span is None
    hot.cool()
    gc.collect()
    assert not list(there.glob("*.rows"))


def test_a_merge_that_ends_after_its_arrangement_was_closed_harms_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = tmp_path / "shard"
    files = _opened(there)
    made = _filled(files, monkeypatch)
    files.close()
    again = _opened(there)
    theirs = _filled(again, monkeypatch)
    rows = _rows(theirs, 3)
    late = made.merged(made.runs, 0)
    assert late is not None
    assert late.mapped
    del late, made
    gc.collect()
    assert _rows(theirs, 3) == rows
    again.keep(theirs.runs, 0, 4)
    assert _opened(there).load() is not None


def test_what_a_flush_keeps_is_what_its_shard_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step that comes while the shard is written is in the trace, and not in what is kept."""
    monkeypatch.setattr(hot_traces, "KEPT_ROWS", 1)
    hot = Hot(1, lambda: 0.0, files=_opened(tmp_path / "shard"))
    hot.trace(1, 0, lambda _: _trace(hot.files))
    hot.add(_updates(0, 9, 1), 1, 2)

    def append(_: list[pa.Table], _lower: int, upper: int | None) -> int | None:
        hot.add(_updates(0, 5, 2), 2, 3)
        return upper

    hot.flush(append, 0.0)
    found = _opened(tmp_path / "shard").load()
    assert found is not None
    assert found.upper == 2
    assert sum(run.rows.num_rows for run in found.runs) == 9


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def _older(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'"format":1', b'"format":0'))


@pytest.mark.parametrize("which", ["*.rows", "*.hashes", "kept.json"])
@pytest.mark.parametrize("harm", [_flip, _cut, Path.unlink, _older])
def test_what_is_damaged_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, harm: Callable[[Path], None], which: str
) -> None:
    there = tmp_path / "shard"
    files = _opened(there)
    made = _filled(files, monkeypatch)
    files.keep(made.runs, 0, 4)
    path = sorted(there.glob(which))[-1]
    before = path.read_bytes()
    harm(path)
    again = _opened(there)
    if path.exists() and path.read_bytes() == before:
        assert again.load() is not None
        return
    assert again.load() is None
    assert again.span is None
    again.keep(made.runs, 0, 4)
    found = _opened(there).load()
    assert found is not None
    assert sum(run.rows.num_rows for run in found.runs) == 703


def test_runs_of_another_kind_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = _opened(tmp_path / "shard")
    files.keep(_filled(files, monkeypatch).runs, 0, 4)
    assert _opened(tmp_path / "shard", "another").load() is None


def test_on_a_full_disk_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = tmp_path / "shard"
    files = _opened(there)
    made = _filled(files, monkeypatch)
    files.keep(made.runs, 0, 4)
    made.add(_updates(0, 4, 5), 0)

    def full(_run: Run, rows: Path, _hashes: Path) -> None:
        rows.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as failing:
        failing.setattr(run_files, "_written", full)
        with pytest.raises(OSError, match="No space"):
            files.keep(made.runs, 0, 6)
    assert files.span is None
    runs = made.runs
    del made
    gc.collect()
    assert len(list(there.glob("*.rows"))) == len(runs) - 1, "half a file is left"
    files.keep(runs, 0, 6)
    found = _opened(there).load()
    assert found is not None
    assert sum(run.rows.num_rows for run in found.runs) == 707


def test_one_process_at_a_time_keeps_what_a_replica_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (HotDirectory(tmp_path / "r1", lambda: tmp_path) for _ in range(2))
    files = first.of("shard", "s")
    made = _filled(files, monkeypatch)
    files.keep(made.runs, 0, 4)
    others = second.of("shard", "s")
    assert not others.keeps
    assert others.load() is None
    others.keep(made.runs, 0, 9)
    # Its large runs are in files all the same, which have no names.
    assert others.put(made.runs[0]).mapped
    first.close()
    third = HotDirectory(tmp_path / "r1", lambda: tmp_path)
    assert third.of("shard", "s").span == (0, 4)
    third.retain({"shard"})
    assert third.of("shard", "s").span == (0, 4)
    third.retain(set())
    assert third.of("shard", "s").span is None
    shutil.rmtree(tmp_path / "r1")
    third.retain(set())
    third.close()


@pytest.mark.parametrize("given_up", [lambda d: d.retain(set()), lambda d: d.remove("shard")])
def test_what_was_never_opened_can_be_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given_up: Callable[[HotDirectory], None]
) -> None:
    """A view may be dropped before the process that has just started opened its arrangements."""
    root = tmp_path / "r1"
    first = HotDirectory(root, lambda: tmp_path)
    files = first.of("shard", "s")
    files.keep(_filled(files, monkeypatch).runs, 0, 4)
    other = HotDirectory(root, lambda: tmp_path)
    given_up(other)
    assert (root / "shard").exists(), "somebody has it"
    first.close()
    second = HotDirectory(root, lambda: tmp_path)
    given_up(second)
    assert not (root / "shard").exists()
    second.close()
    nowhere = HotDirectory(tmp_path / "r2", lambda: tmp_path)
    given_up(nowhere)
    assert not (tmp_path / "r2").exists()


def test_closed_while_it_saves_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = HotDirectory(tmp_path / "r1", lambda: tmp_path)
    files = directory.of("shard", "s")
    made = _filled(files, monkeypatch)
    listed = RunFiles._listed

    def gone(self: RunFiles, run: Run, there: Path) -> object:
        found = listed(self, run, there)
        files.close()
        directory.remove("shard")
        return found

    monkeypatch.setattr(RunFiles, "_listed", gone)
    files.keep(made.runs, 0, 4)
    assert not (tmp_path / "r1" / "shard").exists()
    assert sum(run.rows.num_rows for run in made.runs) > 0
    directory.close()


def test_where_no_directory_can_be_made_nothing_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in the way").touch()
    files = HotDirectory(tmp_path / "in the way" / "r1", lambda: tmp_path).of("shard", "s")
    assert not files.keeps
    files.keep(_filled(files, monkeypatch).runs, 0, 4)
    assert files.load() is None


def test_what_others_have_left_goes_unless_it_is_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    caches = tmp_path / "mzsql"
    roots = {name: caches / name / "hot" / "r1" for name in ("old", "new", "used")}
    opened = {name: HotDirectory(root, lambda: tmp_path) for name, root in roots.items()}
    for one in opened.values():
        files = one.of("shard", "s")
        files.keep(_filled(files, monkeypatch).runs, 0, 4)
    opened["old"].close()
    opened["new"].close()
    for name in ("old", "used"):
        os.utime(roots[name] / "lock", (0, 0))
    now = (roots["new"] / "lock").stat().st_mtime + 1
    remove_old(caches, 3600.0, now)
    assert [name for name, root in roots.items() if root.exists()] == ["new", "used"]
    # Of one environment, those of replicas that there are no more.
    gone = HotDirectory(caches / "new" / "hot" / "r2", lambda: tmp_path)
    gone.of("shard", "s").keep([], 0, 4)
    remove_others(caches / "new" / "hot", {"r1"})
    assert (caches / "new" / "hot" / "r2").exists()
    gone.close()
    remove_others(caches / "new" / "hot", {"r1"})
    assert [path.name for path in (caches / "new" / "hot").iterdir()] == ["r1"]
    remove_others(caches / "nowhere", set())


def test_a_run_put_while_its_arrangement_goes_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = tmp_path / "shard"
    files, named = _opened(there), run_files._named

    def meanwhile(*given: Any) -> Any:
        # Whoever drops the arrangement closes its files and deletes them.
        files.close()
        shutil.rmtree(there, ignore_errors=True)
        return named(*given)

    monkeypatch.setattr(run_files, "_named", meanwhile)
    made = _filled(files, monkeypatch)
    assert not there.exists()
    assert _rows(made, 3) == _rows(_filled(_opened(None), monkeypatch), 3)


def test_a_run_put_into_a_directory_that_goes_is_put_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = tmp_path / "shard"
    files, make = _opened(there), run_files.make_directory

    def gone(path: Path) -> None:
        make(path)
        files.close()
        shutil.rmtree(path)

    monkeypatch.setattr(run_files, "make_directory", gone)
    made = _filled(files, monkeypatch)
    assert not there.exists()
    assert _rows(made, 3)
