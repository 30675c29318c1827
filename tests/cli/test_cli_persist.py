"""``mzsql inspect`` and ``mzsql maintain``, on environments and on any persist location."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import random
import re
import signal
import socket
import subprocess
import sys
import termios
import time
import urllib.request
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import mzsql
from mzsql.cli.app import app, report
from mzsql.persist import PersistClient, Settings

SCHEMA = pa.schema([("a", pa.int64())])
_MZSQL = str(Path(sys.executable).with_name("mzsql"))


def _invoke(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, list(arguments))
    if result.exception is None or isinstance(result.exception, SystemExit):
        return result.exit_code, result.stdout, result.stderr
    told = io.StringIO()
    with contextlib.redirect_stderr(told):
        code = report(result.exception)
    return code, result.stdout, told.getvalue()


class Location:
    """A persist location on files and SQLite, written by a client that leaves maintenance to others."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.blob, self.consensus = f"file:{root}/blob", f"sqlite:{root}/consensus.db"
        self.urls = ("--blob", self.blob, "--consensus", self.consensus)

    def client(self) -> PersistClient:
        return PersistClient.open(
            blob=self.blob,
            consensus=self.consensus,
            settings=Settings(inline_bytes=0, maintenance="elsewhere"),
            background=False,
        )

    def files(self) -> dict[str, bytes]:
        return {
            str(p.relative_to(self.root)): p.read_bytes()
            for p in sorted((self.root / "blob").rglob("*"))
            if p.is_file()
        }

    def entries(self) -> dict[str, list[object]]:
        with self.client() as client:
            log = client.consensus
            return {key: list(log.scan(key, 0, 1000)) for key in log.list_keys()}


def _updates(time: int, rows: int = 1) -> pa.Table:
    return pa.table({"a": list(range(rows)), "mz_time": [time] * rows, "mz_diff": [1] * rows})


@pytest.fixture
def location(tmp_path: Path) -> Location:
    made = Location(tmp_path)
    with made.client() as client:
        handles = []  # closing the client gives up those that are referred to
        for purpose, appends in (("orders", 12), ("customers", 3)):
            write, read = client.open_shard(client.new_shard_id(), SCHEMA, purpose=purpose)
            handles.append((write, read))
            for moment in range(appends):
                write.compare_and_append(
                    _updates(moment, 50), expected_upper=moment, new_upper=moment + 1
                )
            read.downgrade_since(appends - 1)
    return made


def _shards(location: Location) -> list[dict[str, object]]:
    code, out, err = _invoke("inspect", *location.urls, "--json")
    assert (code, err) == (0, "")
    shards: list[dict[str, object]] = json.loads(out)["shards"]
    return shards


def test_inspect_of_a_location_changes_nothing(location: Location) -> None:
    files, entries = location.files(), location.entries()
    code, out, err = _invoke("inspect", *location.urls)
    assert (code, err) == (0, "")
    assert "$100 a year buys 362 GiB" in out
    [total] = [line for line in out.splitlines() if line.strip().startswith("total")]
    assert total.split("|")[4].strip() == "15"  # batches
    shards = _shards(location)
    assert [len(s["batches"]) for s in shards] == [12, 3]  # the largest first
    shard = str(shards[0]["shard_id"])
    code, out, err = _invoke("inspect", *location.urls, "--shard", shard)
    assert (code, err) == (0, "")
    assert re.search(r"since +\[11\]", out)
    assert "cost a month: $" in out
    code, out, _ = _invoke("inspect", *location.urls, "--shard", shard, "--json")
    assert json.loads(out)["report"]["upper"] == 12
    code, out, _ = _invoke("inspect", *location.urls, "--csv")
    assert len(out.splitlines()) == 3
    assert (location.files(), location.entries()) == (files, entries)


def test_inspect_of_an_environment_names_objects_and_leaves_no_reader(tmp_env: Path) -> None:
    _invoke("sql", "-e", str(tmp_env), "CREATE TABLE t (a integer)", "INSERT INTO t VALUES (1)")
    with PersistClient.open(
        blob=f"file:{tmp_env}/blob", consensus=f"sqlite:{tmp_env}/consensus.db"
    ) as client:
        shards = list(client.consensus.list_keys())
        before = {shard: client.inspect(shard) for shard in shards}
        code, out, err = _invoke("inspect", str(tmp_env), "--json")
        assert (code, err) == (0, "")
        named = json.loads(out)["owners"]
        assert "table materialize.public.t" in named.values()
        assert set(shards) <= set(named)
        for name in ("materialize.public.t", "table materialize.public.t", "public.t", "t"):
            code, out, err = _invoke("inspect", str(tmp_env), "--shard", name)
            assert (code, err) == (0, "")
            assert "table materialize.public.t" in out
        assert {shard: client.inspect(shard) for shard in shards} == before


def test_inspect_tells_damage_and_fails(location: Location) -> None:
    [shard] = [s for s in _shards(location) if len(s["batches"]) == 3]  # type: ignore[arg-type]
    name = str(shard["shard_id"])
    lost = next(key for key in location.files() if name in key)
    (location.root / lost).unlink()
    code, _, err = _invoke("inspect", *location.urls, "--shard", name)
    assert code == 1
    assert f"missing from Blob: {lost.removeprefix('blob/')}" in err


@pytest.mark.parametrize("columns", [80, 120, 200])
def test_inspect_shows_on_a_terminal_what_fits(location: Location, columns: int) -> None:
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (50, columns))
    environment = {k: v for k, v in os.environ.items() if k != "COLUMNS"}
    done = subprocess.run(
        [_MZSQL, "inspect", *location.urls], stdout=slave, env=environment, timeout=60, check=True
    )
    assert done.returncode == 0
    os.close(slave)
    told = b""
    with contextlib.suppress(OSError):  # the end of a terminal nobody writes to
        while data := os.read(master, 65536):
            told += data
    os.close(master)
    head, rule, *rows = told.decode().replace("\r", "").split("\n(")[0].splitlines()
    assert all(len(line) <= columns for line in (head, rule, *rows))
    names = [name.strip() for name in head.split("|")]
    assert names[:3] == ["shard", "bytes", "usd_a_month"]
    left_out = re.search(r"have more: (.+)\.", told.decode())
    everything = _invoke("inspect", *location.urls)[1].splitlines()[0]
    rest = left_out.group(1).split(", ") if left_out else []
    assert names + rest == [name.strip() for name in everything.split("|")]
    assert "(2 shards)" in told.decode()


def test_inspect_tells_who_holds_since_back(location: Location) -> None:
    shard = str(_shards(location)[0]["shard_id"])
    told = _invoke("inspect", *location.urls, "--shard", shard)[1]
    assert re.search(r"since +\[11\], held back by nobody", told)
    with location.client() as client:
        reader = client.open_reader(shard)
        client.open_critical_reader(shard, "nightly")
        ahead = client.open_reader(shard)
        writer = client.open_writer(shard)
        writer.compare_and_append(None, expected_upper=12, new_upper=20)
        ahead.downgrade_since(15)
        told = _invoke("inspect", *location.urls, "--shard", shard)[1]
        [line] = [line for line in told.splitlines() if line.startswith("since ")]
        assert line.endswith(f"held back by reader {reader.reader_id}, hold nightly")


def test_inspect_tells_of_a_shard_that_ends_with_its_last_reader(location: Location) -> None:
    shard = str(_shards(location)[0]["shard_id"])
    told = _invoke("inspect", *location.urls, "--shard", shard)[1]
    assert re.search(r"state +live", told)
    with location.client() as client:
        reader = client.open_reader(shard)
        assert client.retire(shard)
        told = _invoke("inspect", *location.urls, "--shard", shard)[1]
        assert re.search(r"state +ending: .* ends with the last of 1\b", told)
        assert json.loads(_invoke("inspect", *location.urls, "--shard", shard, "--json")[1])[
            "report"
        ]["ending"]
        reader.expire()
    told = _invoke("inspect", *location.urls, "--shard", shard)[1]
    assert re.search(r"state +finalized", told)


def test_a_shard_with_the_id_of_catalogs_makes_no_environment(tmp_path: Path) -> None:
    other = Location(tmp_path)
    with other.client() as client:
        client.open_shard("s00000000-0000-4000-8000-000000000001", SCHEMA, purpose="mine")
    code, out, err = _invoke("inspect", *other.urls)
    assert (code, err) == (0, "")
    assert "mine" in out or "00000001" in out
    assert _invoke("maintain", *other.urls)[0] == 0


def test_options_that_make_no_sense(location: Location) -> None:
    for wrong in (["--leaks-older-than", "inf"], ["--interval", "0"], ["--metrics-port", "70000"]):
        code, _, err = _invoke("maintain", *location.urls, *wrong)
        assert code == 2
        assert wrong[0] in err
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        code, _, err = _invoke(
            "maintain", *location.urls, "--metrics-port", port, "--metrics-address", "127.0.0.1"
        )
    assert code == 1
    assert f"metrics cannot be served at 127.0.0.1, port {port}" in err


@pytest.mark.parametrize("command", ["inspect", "maintain"])
def test_wrong_places_are_refused_and_not_made(
    command: str, location: Location, tmp_path: Path
) -> None:
    nowhere = tmp_path / "nowhere"
    for arguments in (
        ["--blob", f"file:{nowhere}", "--consensus", location.consensus],
        ["--blob", location.blob, "--consensus", f"sqlite:{nowhere}"],
        [str(nowhere)],
        ["--blob", location.blob],
        [],
        [str(nowhere), *location.urls],
        [*location.urls, "--shard", "s-unknown"],
    ):
        code, out, err = _invoke(command, *arguments)
        assert (code, out) == (1, ""), arguments
        assert err.startswith("ERROR:  "), arguments
    assert not nowhere.exists()


def test_maintain_compacts_collects_and_deletes_leaks(location: Location) -> None:
    with location.client() as client:
        shard = str(_shards(location)[0]["shard_id"])
        client.open_writer(shard).batch(_updates(12, 50), lower=12, upper=13)
    files, entries = location.files(), location.entries()
    code, out, err = _invoke("maintain", *location.urls, "--dry-run", "--leaks-older-than", "0")
    assert (code, err) == (0, "")
    assert "1 leaks left" in out
    assert (location.files(), location.entries()) == (files, entries)
    code, out, err = _invoke("maintain", *location.urls, "--json", "--full")
    assert (code, err) == (0, "")
    done = json.loads(out)
    assert (done["shards"], done["merges"]) == (2, 2)
    assert done["batches_merged"] == done["objects_deleted"] == 15
    assert (done["leaks_deleted"], done["failures"]) == (0, [])  # the leak is young
    code, out, err = _invoke("maintain", *location.urls, "--leaks-older-than", "0")
    assert (code, err) == (0, "")
    assert "1 leaks deleted" in out
    assert [len(s["batches"]) for s in _shards(location)] == [1, 1]  # type: ignore[arg-type]
    assert all(not s["unreferenced"] for s in _shards(location))


def test_maintain_of_one_shard_that_fails(location: Location) -> None:
    shards = [str(s["shard_id"]) for s in _shards(location)]
    with location.client() as client:
        head = client.consensus.head(shards[0])
        assert head is not None
        client.consensus.compare_and_set(
            shards[0], head.seqno, head._replace(seqno=head.seqno + 1, data=b"damage")
        )
    code, out, err = _invoke("maintain", *location.urls, "--full", "--no-leaks")
    assert code == 1
    assert "1 shards" in out
    assert "1 compactions of 3 batches" in out
    assert err.startswith(f"ERROR:  shard {shards[0]}: ")
    assert err.count(shards[0]) == 1
    code, out, err = _invoke("maintain", *location.urls, "--shard", shards[1])
    assert (code, err) == (0, "")
    code, out, err = _invoke("inspect", *location.urls)
    assert code == 1
    assert shards[1] in out
    assert err.startswith(f"ERROR:  shard {shards[0]}: ")
    assert err.count(shards[0]) == 1


def test_maintain_spares_what_the_write_ahead_log_holds(tmp_env: Path) -> None:
    """A large write that was committed to the log and whose process was killed before it reached the table's shard."""
    _invoke("sql", "-e", str(tmp_env), "CREATE TABLE t (a integer, b text)")
    program = f"""
import os, signal
import mzsql
from mzsql.storage import Tables
con = mzsql.connect({str(tmp_env)!r})
cur = con.cursor()
Tables.apply = Tables.apply_all = lambda *a, **k: os.kill(os.getpid(), signal.SIGKILL)
cur.execute("INSERT INTO t SELECT g, repeat(CAST(g AS text), 50) FROM generate_series(1, 9000) AS s(g)")
os.kill(os.getpid(), signal.SIGKILL)
"""
    killed = subprocess.run([sys.executable, "-c", program], check=False, timeout=120)
    assert killed.returncode == -signal.SIGKILL
    code, out, err = _invoke("maintain", str(tmp_env), "--leaks-older-than", "0")
    assert (code, err) == (0, ""), out
    code, out, _ = _invoke("sql", "-e", str(tmp_env), "--csv", "SELECT count(*) FROM t")
    assert (code, out.splitlines()[-1]) == (0, "9000")


def test_an_environment_whose_maintenance_is_elsewhere(tmp_env: Path) -> None:
    def batches() -> int:
        _, out, _ = _invoke("inspect", str(tmp_env), "--json")
        return sum(len(shard["batches"]) for shard in json.loads(out)["shards"])

    with mzsql.connect(str(tmp_env), maintenance="elsewhere") as connection:
        cursor = connection.cursor()
        cursor.execute("CREATE TABLE t (a integer)")
        before = batches()
        for _ in range(12):
            cursor.execute("INSERT INTO t VALUES (1)")
        assert batches() >= before + 12
        code, out, err = _invoke("maintain", str(tmp_env))
        assert (code, err) == (0, ""), out
        assert batches() < before + 12
        cursor.execute("SELECT count(*) FROM t")
        assert cursor.fetchall() == [(12,)]
    with pytest.raises(
        mzsql.Error, match="maintenance must be 'in process' or 'elsewhere', not str 'sometimes'"
    ):
        mzsql.connect(str(tmp_env), maintenance="sometimes")  # type: ignore[arg-type]


def _free_port() -> int:
    """Not one of those that the system hands out, which another may be given before the process takes it."""
    for port in random.SystemRandom().sample(range(15_000, 32_000), 100):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise RuntimeError("no port is free")


def test_a_process_of_its_own_that_keeps_a_location_tidy(location: Location) -> None:
    port = _free_port()
    process = subprocess.Popen(
        [
            *(_MZSQL, "maintain", *location.urls, "--forever", "--interval", "0.2"),
            *("--metrics-port", str(port), "--metrics-address", "127.0.0.1"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        with location.client() as client:
            write = client.open_writer(str(_shards(location)[0]["shard_id"]))
            end = time.monotonic() + 60
            moment = 12
            while len(client.inspect(write.shard_id).trace) > 8 or moment < 40:  # type: ignore[union-attr]
                assert time.monotonic() < end, "nobody compacted the shard"
                if moment < 40:
                    write.compare_and_append(
                        _updates(moment), expected_upper=moment, new_upper=moment + 1
                    )
                    moment += 1
                else:
                    time.sleep(0.1)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            scraped = answer.read().decode()
        assert re.search(r"^mzsql_persist_merges_total [1-9]", scraped, re.MULTILINE)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, err) == (0, "")
    assert "compactions of" in out
