"""Cases of many small commits: latency, flatness, listeners, several writers, reading what they left."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from time import perf_counter
from typing import Any

import pyarrow as pa
from figures import Case, median, pauses, percentile, rounds, scratch, timed
from large import CHILDREN
from stores import STORES, Delta, Shard

from mzsql.persist import BlobPart, PersistClient

BLOCK = 50
FSYNCS = "fsync,fdatasync,sync,syncfs,msync,sync_file_range"
SETTLE_SECONDS = 60.0
FLAT_COMMITS = 10_000
WRITERS = 4
LISTENER_WARM_UP = 50


def _ten(rows: pa.Table, commit: int) -> pa.Table:
    """The ten rows of a commit, others than those of the commits around it."""
    return rows.slice(commit * 10 % (rows.num_rows - 10), 10).combine_chunks()


def _run(
    arguments: list[str], out: Path, *, before: list[str] | None = None
) -> subprocess.Popen[bytes]:
    command = [*(before or []), sys.executable, str(CHILDREN), str(out), *arguments]
    return subprocess.Popen(command)


def _done(child: subprocess.Popen[bytes], out: Path) -> Any:
    if child.wait() != 0:
        raise SystemExit(f"a process of the benchmark ended with {child.returncode}: {child.args}")
    return json.loads(out.read_text())


def _wait_for(files: list[Path], children: list[subprocess.Popen[bytes]]) -> None:
    while not all(file.exists() for file in files):
        if any(child.poll() is not None for child in children):
            raise SystemExit("a process of the benchmark ended early")
        time.sleep(0.01)


def _fsyncs(store: str, source: Path, folder: Path, number: int) -> int:
    """The fsyncs of a process that makes so many commits, counted by strace."""
    home = folder / f"fsync-{store}-{number}"
    home.mkdir()
    counts, out = home / "strace", home / "found.json"
    before = ["strace", "-f", "-c", "-e", f"trace={FSYNCS}", "-o", str(counts)]
    _done(_run(["commits", store, str(home), str(source), str(number)], out, before=before), out)
    lines = [line.split() for line in counts.read_text().splitlines()]
    return sum(int(line[3]) for line in lines if line and line[-1] in FSYNCS.split(","))


def fsyncs_per_commit(store: str, source: Path, folder: Path) -> float | None:
    """What each of 100 further commits costs; None without strace."""
    if shutil.which("strace") is None:
        return None
    return (_fsyncs(store, source, folder, 150) - _fsyncs(store, source, folder, 50)) / 100


def commits(rows: pa.Table, source: Path, directory: Path, number: int) -> Case:
    """Case c."""
    case = Case(
        "c",
        f"commits of 10 rows of lineitem, {number} each in blocks of {BLOCK}, handles kept open",
    )
    ten = _ten(rows, 0)
    times: dict[str, list[float]] = {name: [] for name in STORES}
    fsyncs: dict[str, float | None] = {}
    with scratch(directory) as folder:
        opened: dict[str, Any] = {}
        for name, make in STORES.items():
            (folder / name).mkdir()
            opened[name] = make(folder / name, ten.schema)

        def block(name: str, store: Any) -> float:
            for _ in range(BLOCK):
                prepared = store.prepare(_ten(rows, len(times[name])))
                times[name].append(timed(lambda p=prepared: store.commit(p)))
            return 0.0

        for store in opened.values():  # what is loaded or made at the first commit
            for _ in range(5):
                store.commit(store.prepare(ten))
        rounds(number // BLOCK, {n: (lambda n=n, s=s: block(n, s)) for n, s in opened.items()})
        for store in opened.values():
            store.close()
        for name in STORES:
            fsyncs[name] = fsyncs_per_commit(name, source, folder)
    p50 = {name: median(found) for name, found in times.items()}
    p99 = {name: percentile(found, 99) for name, found in times.items()}
    for name in STORES:
        case.row(
            what=name,
            commits=len(times[name]),
            p50_ms=p50[name] * 1000,
            p99_ms=p99[name] * 1000,
            fsyncs_per_commit=fsyncs[name],
            p50_over_ours=p50[name] / p50["mzsql.persist"],
            p99_over_ours=p99[name] / p99["mzsql.persist"],
        )
    for name, least in (("delta-rs", 5), ("pyiceberg", 20)):
        case.target(f"{name} p50 : ours", p50[name] / p50["mzsql.persist"], least=least)
        case.target(f"{name} p99 : ours", p99[name] / p99["mzsql.persist"], least=least)
    return case


def _settle(client: PersistClient, shard_id: str) -> float:
    """Wait until maintenance in the background has nothing left to do: the state has not changed for a second. The seconds it took."""
    begun = changed = perf_counter()
    seqno = -1
    while perf_counter() - changed < 1.0 and perf_counter() - begun < SETTLE_SECONDS:
        state = client.inspect(shard_id)
        assert state is not None
        if state.seqno != seqno:
            seqno, changed = state.seqno, perf_counter()
        time.sleep(0.05)
    return changed - begun


def flat(rows: pa.Table, directory: Path) -> Case:
    """Case d."""
    case = Case(
        "d", f"{FLAT_COMMITS:,} commits of 10 rows with compaction and garbage collection running"
    )
    ten = _ten(rows, 0)
    times = []
    with scratch(directory) as folder:
        shard = Shard(folder, ten.schema)
        reader = shard.client.open_reader(shard.shard_id)
        begun = perf_counter()
        for number in range(FLAT_COMMITS):
            prepared = shard.prepare(_ten(rows, number))
            times.append(timed(lambda p=prepared: shard.commit(p)))
            if number % 20 == 19:  # history is given up, so that compaction has something to sum up
                reader.downgrade_since(shard.upper - 1)
        whole = perf_counter() - begun
        settled = _settle(shard.client, shard.shard_id)
        figures = _left_behind(shard)
        shard.close()
    windows = {
        "1 to 1,000": times[:1000],
        "4,501 to 5,500": times[4500:5500],
        "9,001 to 10,000": times[-1000:],
    }
    for name, found in windows.items():
        case.row(
            commits=name,
            p50_ms=median(found) * 1000,
            p99_ms=percentile(found, 99) * 1000,
            longest_ms=max(found) * 1000,
        )
    case.notes.append(
        f"{FLAT_COMMITS / whole:.0f} commits/s in all; maintenance was done {settled:.1f} s after the last: "
        + ", ".join(f"{name} {value:,}" for name, value in figures.items())
        + "."
    )
    first, last = windows["1 to 1,000"], windows["9,001 to 10,000"]
    case.target("p50 of the last : first 1,000", median(last) / median(first), most=1.5)
    case.target("live batches", figures["live batches"], most=48)
    case.target(
        "log entries since the last rollup",
        figures["log entries since the last rollup"],
        most=2 * shard.client.settings.rollup_interval,
    )
    case.target("unreferenced blobs", figures["unreferenced blobs"], most=0)
    return case


def _left_behind(shard: Shard) -> dict[str, int]:
    state = shard.client.inspect(shard.shard_id)
    assert state is not None
    live = {p.key for b in state.trace for p in b.parts if isinstance(p, BlobPart)}
    dead = {key for keys in state.garbage.values() for key in keys}
    listed = [key for key, _ in shard.client.blob.list_keys_and_metadata(f"{shard.shard_id}/")]
    entries = shard.client.consensus.scan(shard.shard_id, 0, 1_000_000)
    return {
        "live batches": len(state.trace),
        "log entries": len(entries),
        "log entries since the last rollup": state.seqno - state.latest_rollup,
        "blobs": len(listed),
        "blobs to be collected": len(dead & set(listed)),
        "unreferenced blobs": len(set(listed) - live - dead - set(state.rollups.values())),
    }


def listeners(rows: pa.Table, directory: Path, number: int) -> Case:
    """Case e."""
    case = Case(
        "e", "from the call of compare_and_append (10 rows) to the listener's having the updates"
    )
    ten = _ten(rows, 0)
    for where in ("same process", "other process"):
        with scratch(directory) as folder:
            shard = Shard(folder, ten.schema)
            shard.commit(shard.prepare(ten))
            last = 1 + LISTENER_WARM_UP + number
            sent: dict[int, tuple[float, float]] = {}

            def send(shard: Shard = shard, sent: dict[int, tuple[float, float]] = sent) -> None:
                for pause in pauses(LISTENER_WARM_UP + number, 0.005, 0.025):
                    time.sleep(pause)
                    prepared, at = shard.prepare(ten), shard.upper
                    begun = perf_counter()
                    shard.commit(prepared)
                    sent[at] = (begun, perf_counter())

            here = where == "same process"
            seen = (
                _listen_here(shard, last, send)
                if here
                else _listen_there(folder, shard, last, send)
            )
            shard.close()
        since_call, since_done, at = [], [], 1
        for frontier, when in seen:
            for one in range(at, frontier):
                since_call.append(when - sent[one][0])
                since_done.append(when - sent[one][1])
            at = max(at, frontier)
        # A process that has just started imports what it decodes with at its first update.
        since_call, since_done = since_call[LISTENER_WARM_UP:], since_done[LISTENER_WARM_UP:]
        assert len(since_call) == number
        case.row(
            listener=where,
            appends=number,
            p50_ms=median(since_call) * 1000,
            p99_ms=percentile(since_call, 99) * 1000,
            p50_ms_after_the_call_returned=median(since_done) * 1000,
        )
        case.target(f"{where} p50 ms", median(since_call) * 1000, most=10)
    return case


def _listen_here(shard: Shard, last: int, send: Any) -> list[tuple[int, float]]:
    seen: list[tuple[int, float]] = []
    reader = shard.client.open_reader(shard.shard_id)

    def follow() -> None:
        for _, frontier in reader.listen(0, timeout=60):
            assert frontier is not None
            seen.append((frontier, perf_counter()))
            if frontier >= last:
                return

    thread = threading.Thread(target=follow)
    thread.start()
    send()
    thread.join()
    return seen


def _listen_there(folder: Path, shard: Shard, last: int, send: Any) -> list[tuple[int, float]]:
    ready, out = folder / "ready", folder / "found.json"
    child = _run(["listen", str(folder), shard.shard_id, str(ready), str(last)], out)
    _wait_for([ready], [child])
    send()
    return [(frontier, when) for frontier, when in _done(child, out)["seen"]]


def writers(rows: pa.Table, source: Path, directory: Path, seconds: float) -> Case:
    """Case f."""
    case = Case(
        "f", f"{WRITERS} processes committing 10 rows at a time to one table for {seconds:g} s"
    )
    ten = _ten(rows, 0)
    for store in ("mzsql.persist", "delta-rs"):
        with scratch(directory) as folder:
            opened = (
                Shard(folder, ten.schema) if store == "mzsql.persist" else Delta(folder, ten.schema)
            )
            name = opened.shard_id if isinstance(opened, Shard) else opened.path
            go = folder / "go"
            outs = [folder / f"found-{number}.json" for number in range(WRITERS)]
            arguments = ["writer", store, str(folder), str(source), name]
            children = [
                _run([*arguments, f"{out}.ready", str(go), str(seconds)], out) for out in outs
            ]
            _wait_for([Path(f"{out}.ready") for out in outs], children)
            later = folder / "later"
            later.write_text(str(perf_counter() + 0.2))
            later.rename(go)
            found = [_done(child, out) for child, out in zip(children, outs, strict=True)]
            if isinstance(opened, Shard):
                opened.upper = opened.writer.fetch_upper()
            there = opened.read()
            opened.close()
        shares = [len(one["done"]) for one in found]
        failures = [failure for one in found for failure in one["failures"]]
        waits = [end - begun for one in found for begun, end in one["done"]]
        case.row(
            what=store,
            commits_s=sum(shares) / seconds,
            least_share=min(shares) / max(1, sum(shares)),
            most_share=max(shares) / max(1, sum(shares)),
            least_over_most=min(shares) / max(1, *shares),
            p50_ms=median(waits) * 1000,
            p99_ms=percentile(waits, 99) * 1000,
            longest_wait_ms=percentile(waits, 100) * 1000,
            failures=len(failures),
            rows_missing=10 * sum(shares) - there,
        )
        if failures:
            case.notes.append(f"{store}: for example {failures[0]}")
        if store == "mzsql.persist":
            case.target("failures", len(failures), most=0)
            case.target("rows missing or too many", abs(10 * sum(shares) - there), most=0)
            case.target("slowest : fastest writer", min(shares) / max(1, *shares), least=0.25)
    return case


def reads(rows: pa.Table, directory: Path, number: int, repeats: int) -> Case:
    """Case h."""
    case = Case("h", f"reading all rows into Arrow after {number} commits of 10 rows")
    ten = _ten(rows, 0)
    with scratch(directory) as folder:
        opened: dict[str, Any] = {}
        for name, make in STORES.items():
            (folder / name).mkdir()
            opened[name] = make(folder / name, ten.schema)
            for commit in range(number):
                opened[name].commit(opened[name].prepare(_ten(rows, commit)))

        def read(store: Any, act: str) -> float:
            begun = perf_counter()
            found = getattr(store, act)()
            seconds = perf_counter() - begun
            assert found == 10 * number, found
            return seconds

        found = {
            act: rounds(
                repeats,
                {n: (lambda s=s, act=act: read(s, act)) for n, s in opened.items()},
                warm=1,
            )
            for act in ("read", "read_anew")
        }
        for store in opened.values():
            store.close()
    for name in STORES:
        here, anew = (median(found[act][name]) for act in ("read", "read_anew"))
        case.row(
            what=name,
            open_handle_ms=here * 1000,
            handle_opened_for_it_ms=anew * 1000,
            over_ours=here / median(found["read"]["mzsql.persist"]),
            opened_for_it_over_ours=anew / median(found["read_anew"]["mzsql.persist"]),
        )
    return case
