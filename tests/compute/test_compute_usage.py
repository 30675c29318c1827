"""What a replica's process takes of its machine, and how a dataflow says that there is none left."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from mzsql.compute.replica.scheduling.failures import told_of
from mzsql.compute.transport.usage import Meter, usage
from mzsql.expr.engines import scratch_path

MIB = 1 << 20

needs_proc = pytest.mark.skipif(
    not Path("/proc/self/statm").exists(), reason="this system tells nothing of memory"
)


def test_disk_is_what_is_spilled_and_kept(tmp_path: Path) -> None:
    before = usage(tmp_path)
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "kept").write_bytes(b"x" * MIB)
    spilled = scratch_path() / "spilled-by-a-test"
    spilled.write_bytes(b"x" * MIB)
    try:
        after = usage(tmp_path)
    finally:
        spilled.unlink()
    assert after.disk - before.disk == 2 * MIB
    assert after.disk_limit is not None
    assert after.disk_limit > after.disk
    assert usage(tmp_path / "is-not-there").disk == before.disk


@needs_proc
def test_memory_is_that_of_what_the_process_has_started_too() -> None:
    before = usage()
    program = f"held = b'x' * {64 * MIB}; print('there', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        during = usage()
        child.communicate(b"\n")
    assert before.memory is not None
    assert during.memory is not None
    assert during.memory - before.memory > 32 * MIB
    assert before.memory_limit is not None
    assert before.memory < before.memory_limit


@needs_proc
def test_a_limit_of_the_process_is_its_limit() -> None:
    program = (
        "import resource; from mzsql.compute.transport.usage import usage; "
        f"resource.setrlimit(resource.RLIMIT_AS, ({8192 * MIB}, -1)); print(usage().memory_limit)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert int(done.stdout) <= min(8192 * MIB, machine)


def test_cpu_use_is_what_was_used_since_a_reading_a_second_old() -> None:
    now = used = 0
    meter = Meter(lambda: now, lambda: used)
    assert meter.rate() is None
    # Of the second before, of the half second after it and that second, and no more of them a second later.
    for now, used, rate in ((1, 500, 500), (1.5, 1500, 1000), (2.5, 1500, 667), (4.5, 1500, 0)):  # noqa: B007
        assert meter.rate() == rate, now


@needs_proc
def test_cpu_use_is_that_of_what_the_process_has_started_too() -> None:
    now = 0.0
    meter = Meter(lambda: now)
    burning = (
        "import time; until = time.process_time() + 0.5\nwhile time.process_time() < until: pass"
    )
    subprocess.run([sys.executable, "-c", burning], check=True)
    now = 1.0
    found = usage(meter=meter)
    assert found.cpu is not None
    assert found.cpu >= 450_000_000
    assert found.cpu_limit is not None
    assert 0 < found.cpu_limit <= (os.cpu_count() or 1) * 10**9


def of_duckdb(statement: str, **settings: str) -> Exception:
    """What DuckDB says where a statement has no room."""
    with duckdb.connect(config=settings) as connection, pytest.raises(duckdb.Error) as failure:
        connection.execute(statement)
    return failure.value


def test_memory_that_is_gone_is_told_of() -> None:
    met = ValueError("the step failed")
    met.__cause__ = MemoryError()
    for failure in (
        of_duckdb("CREATE TABLE t AS FROM range(1000000)", memory_limit="1MB", temp_directory=""),
        pa.ArrowMemoryError("malloc of size 64 failed"),
        RuntimeError("can't start new thread"),
        OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)),
        met,
    ):
        said = told_of(failure)
        assert said.startswith("the replica's process is out of memory (mz_internal."), said
        assert said.endswith(f"{type(failure).__name__}: {failure}")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no disk here that is full")
def test_space_that_is_gone_is_told_of() -> None:
    full_disk = os.strerror(errno.ENOSPC)
    with (
        pytest.raises(OSError, match=full_disk) as met,
        Path("/dev/full").open("wb", buffering=0) as full,
    ):
        full.write(b"x")
    for failure in (
        met.value,
        of_duckdb("COPY (FROM range(1000000)) TO '/dev/full' (FORMAT csv, USE_TMP_FILE false)"),
        OSError(errno.EDQUOT, os.strerror(errno.EDQUOT)),
    ):
        said = told_of(failure)
        assert said.startswith("no space left for the replica's process (mz_internal."), said
        assert said.endswith(f"{type(failure).__name__}: {failure}")


def test_anything_else_is_told_as_it_is() -> None:
    assert told_of(OSError(errno.EACCES, "not yours")) == "PermissionError: [Errno 13] not yours"
    assert told_of(KeyError("a")) == "KeyError: 'a'"
