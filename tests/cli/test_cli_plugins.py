"""``mzsql plugins``: the list, the kit on a URL, what is kept of it."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from mzsql.cli.kit_records import Record, find, keep, state_directory

_MZSQL = str(Path(sys.executable).with_name("mzsql"))
SENTINEL = "xyzzyS3NTINEL"

PLUGIN = """
import threading
from mzsql.location import Serves, hookimpl, url_options
from mzsql.location.mem import MemBlob

class Forgetful(MemBlob):
    def set(self, key, value):
        if len(value):  # it takes the empty value for none
            super().set(key, value)

class Hanging(MemBlob):
    def delete(self, key):
        threading.Event().wait()

STORES = {"forgetful": Forgetful(), "hanging": Hanging(), "sound": MemBlob()}

@hookimpl
def mzsql_serves():
    return [Serves("blob", tuple(STORES), "sound:[x]", one_process=True)]

@hookimpl
def mzsql_open_blob(url):
    if url.scheme in STORES:
        url_options(url, ())  # there are none
        return STORES[url.scheme]

@hookimpl
def mzsql_scratch_url(kind, directory):
    return None
"""


def install(site: Path, name: str, body: str, version: str = "1.0") -> None:
    for old in site.glob(f"{name}-*.dist-info"):
        shutil.rmtree(old)
    folder = site / f"{name}-{version}.dist-info"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (folder / "entry_points.txt").write_text(f"[mzsql]\n{name} = mzsql_{name}_module\n")
    (site / f"mzsql_{name}_module.py").write_text(body)


class Shell:
    """The command, with distributions of a test's own and a state directory of its own."""

    def __init__(self, root: Path) -> None:
        self.site, self.state = root / "site", root / "state"
        self.site.mkdir()
        variables = {"PYTHONPATH": str(self.site), "XDG_STATE_HOME": str(self.state)}
        self.env = {**os.environ, **variables}

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [_MZSQL, *arguments],
            env=self.env,
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
        )

    def plugin(self, name: str) -> dict:
        told = json.loads(self("plugins", "--json").stdout)
        (found,) = [one for one in told["plugins"] if one["name"] == name]
        return found


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_the_list_has_sound_and_broken_ones(shell: Shell) -> None:
    install(shell.site, "strange", PLUGIN)
    install(shell.site, "broken", "raise RuntimeError('boom')")
    install(shell.site, "newer", "MZSQL_HOOKS = 99")
    ran = shell("plugins")
    assert ran.returncode == 0
    assert "\nbroken: RuntimeError: boom" in ran.stdout
    assert "\nnewer: it is written for version 99 of the hooks" in ran.stdout
    lines = {line.split()[0]: line for line in ran.stdout.splitlines() if line.strip()}
    assert "strange 1.0" in lines["strange"]
    assert "sound:[x]" in lines["strange"]
    assert "failed" in lines["broken"]
    assert "refused" in lines["newer"]
    assert "not run" in lines["sqlite"]
    told = shell.plugin("newer")
    assert (told["state"], told["hooks_version"]) == ("refused", 99)
    assert {state["scheme"] for state in shell.plugin("strange")["kit"]} == {
        "forgetful",
        "hanging",
        "sound",
    }


@pytest.mark.long
def test_a_run_is_told_and_kept_until_a_version_changes(shell: Shell) -> None:
    install(shell.site, "strange", PLUGIN)
    ran = shell("plugins", "test", f"sound://me:{SENTINEL}@host/x")
    assert ran.returncode == 0, ran.stdout
    assert "blob set " in ran.stdout.partition("milliseconds a call")[2]
    assert "passed  blob.set_get_overwrite" in ran.stdout
    assert "sound://me:***@host/x as blob:" in ran.stdout
    assert "0 failed" in ran.stdout
    kept = [path.read_text() for path in shell.state.rglob("*") if path.is_file()]
    assert kept
    assert not any(SENTINEL in text for text in [ran.stdout, ran.stderr, *kept])
    states = {state["scheme"]: state["state"] for state in shell.plugin("strange")["kit"]}
    assert states == {"sound": "passed", "forgetful": "not run", "hanging": "not run"}
    assert "sound: passed (quick, 20" in shell("plugins").stdout
    install(shell.site, "strange", PLUGIN, "1.1")
    assert "sound: out of date (of 1.0, kit" in shell("plugins").stdout


@pytest.mark.long
def test_what_fails_is_told_with_the_line_that_reruns_it(shell: Shell) -> None:
    install(shell.site, "strange", PLUGIN)
    ran = shell("plugins", "test", "forgetful:x", "--only", "blob", "--seed", "7")
    assert ran.returncode == 1
    assert "\nFAILED blob.empty_value: An empty value is a value." in ran.stdout
    again = next(
        line.removeprefix("  again: ")
        for line in ran.stdout.splitlines()
        if line.startswith("  again: ") and "blob.empty_value" in line
    )
    assert "--seed 7" in again
    _, *arguments = shlex.split(again)
    second = shell(*arguments, "--json")
    assert second.returncode == 1
    told = json.loads(second.stdout)
    assert not told["passed"]
    (run,) = told["runs"]
    assert [(one["name"], one["outcome"]) for one in run["results"]] == [("empty_value", "failed")]
    assert "failed" in {state["state"] for state in shell.plugin("strange")["kit"]}


@pytest.mark.long
def test_a_single_case_of_a_backend_that_serves_more(shell: Shell) -> None:
    ran = shell("plugins", "test", "mem:x", "--case", "oracle.fresh")
    assert ran.returncode == 0
    assert "1 passed, 0 failed" in ran.stdout


@pytest.mark.long
def test_a_profile_keeps_its_password_to_itself(shell: Shell) -> None:
    install(shell.site, "strange", PLUGIN)
    shell.env["MZSQL_PROFILE_PROD_BLOB"] = f"forgetful://me:{SENTINEL}@h"
    shell.env["MZSQL_PROFILE_PROD_CONSENSUS"] = "mem:profile"
    shell.env["MZSQL_PROFILE_PROD_ORACLE"] = "mem:profile"
    cases = [word for case in ("empty", "empty_value", "fresh") for word in ("--case", case)]
    ran = shell("plugins", "test", "profile:prod", *cases)
    assert ran.returncode == 1
    assert SENTINEL not in ran.stdout + ran.stderr
    assert "again: mzsql plugins test profile:prod --case blob.empty_value" in ran.stdout
    assert "passed  consensus.empty " in ran.stdout
    assert "passed  oracle.fresh " in ran.stdout
    only = shell("plugins", "test", "profile:prod", *cases, "--only", "oracle", "--json")
    assert only.returncode == 0
    assert [run["url"] for run in json.loads(only.stdout)["runs"]] == ["mem:profile"]
    assert shell("plugins", "test", "profile:none").returncode == 2


@pytest.mark.long
def test_a_result_that_cannot_be_kept_is_told_all_the_same(shell: Shell) -> None:
    shell.state.write_text("a file where the directory would be")
    install(shell.site, "strange", PLUGIN)
    ran = shell("plugins", "test", "sound:x", "--no-speed")
    assert ran.returncode == 0
    assert "0 failed" in ran.stdout
    assert "milliseconds" not in ran.stdout
    assert "WARNING:  the result is not kept" in ran.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["nobody://me:{}@host/x"],
        ["file://me:{}@host/x"],
        ["postgres://me:{}@host:port/x"],
        ["no-url-{}"],
        ["sound:x?password={}", "--only", "consensus"],
        ["sound:x", "--only", "tape"],
        ["sound:x", "--case", "no_such_case"],
    ],
)
def test_what_cannot_be_opened_is_told_and_exit_code_2(shell: Shell, arguments: list[str]) -> None:
    install(shell.site, "strange", PLUGIN)
    secret = SENTINEL if "no-url" not in arguments[0] else "x"
    url, *rest = arguments
    ran = shell("plugins", "test", url.format(secret), *rest)
    assert ran.returncode == 2
    first, *more = ran.stderr.splitlines()
    assert first.startswith("ERROR:  ")
    assert all(line.startswith(("DETAIL:  ", "HINT:  ")) for line in more)
    assert SENTINEL not in ran.stderr + ran.stdout
    assert not list(shell.state.rglob("*.json"))


@pytest.mark.long
def test_a_backend_that_hangs_is_given_up(shell: Shell) -> None:
    """What was found before is told and kept, and the case that hangs is one that failed."""
    install(shell.site, "strange", PLUGIN)
    ran = shell("plugins", "test", "hanging:x", "--timeout", "2")
    assert ran.returncode == 1
    assert "hanging:x: blob.absent did not end within 2 seconds" in ran.stderr
    assert "\nFAILED blob.absent: A key that was never set" in ran.stdout
    assert "hanging:x as blob: 0 passed, 1 failed" in ran.stdout
    states = {state["scheme"]: state["state"] for state in shell.plugin("strange")["kit"]}
    assert states["hanging"] == "failed"
    ran = shell("plugins", "test", "hanging:x", "--timeout", "2", "--json")
    assert ran.returncode == 1
    told = json.loads(ran.stdout)
    assert [one["name"] for one in told["runs"][0]["results"]] == ["absent"]
    assert not told["passed"]


@pytest.mark.long
def test_what_a_plugin_prints_is_not_the_commands_output(shell: Shell) -> None:
    """Neither of the list nor of a run, in which it would also be taken for a worker's answer."""
    chatty = "print('imported')\n" + PLUGIN.replace("    return", "    print('asked')\n    return")
    install(shell.site, "strange", chatty)
    ran = shell("plugins", "--json")
    assert "strange" in {one["name"] for one in json.loads(ran.stdout)["plugins"]}
    assert "imported\nasked\n" in ran.stderr
    url = f"sqlite:{shell.site}/o.db"
    ran = shell("plugins", "test", url, "--case", "oracle.processes", "--json")
    assert json.loads(ran.stdout)["passed"], ran.stderr


@pytest.mark.long
def test_two_on_one_scheme_are_shown(shell: Shell) -> None:
    install(shell.site, "strange", PLUGIN)
    install(shell.site, "other", PLUGIN.replace('"forgetful": Forgetful(), ', ""))
    told = json.loads(shell("plugins", "--json").stdout)["contested"]
    assert told == [
        {"kind": "blob", "scheme": scheme, "plugins": ["other", "strange"]}
        for scheme in ("hanging", "sound")
    ]
    ran = shell("plugins")
    assert "\nsound: is served as blob by other, strange: none is opened" in ran.stdout
    ran = shell("plugins", "test", "sound:x")
    assert ran.returncode == 2
    assert "more than one plugin serves a Blob store with scheme 'sound'" in ran.stderr


@pytest.mark.long
def test_check_runs_the_kit_where_nothing_must_be_set_up(shell: Shell) -> None:
    scratch = PLUGIN.replace("return None\n", 'return "sound:x"\n')
    install(shell.site, "strange", scratch)
    bad = scratch.replace('Forgetful(), "hanging": Hanging(), "sound": MemBlob()', "MemBlob()")
    bad = bad.replace("forgetful", "worse").replace("sound:x", "worse:x")
    install(shell.site, "bad", bad.replace("MemBlob()", "Forgetful()"))
    away = scratch.replace('"sound:x"', '"away:x"').replace('"sound": M', '"near": M')
    away = away.replace("forgetful", "far").replace("hanging", "there")
    install(shell.site, "away", away)
    code = (
        "import sys\n"
        "from mzsql.location import default_registry\n"
        "from mzsql.cli import plugins\n"
        "registry = default_registry()\n"
        "registry.installed = [o for o in registry.installed if o.name in ('away', 'strange', 'bad', 'mem')]\n"
        "sys.exit(plugins.check_all('json'))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], env=shell.env, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 1, ran.stderr
    assert "bad: blob.empty_value failed" in ran.stderr
    assert "away blob: no installed plugin serves a Blob store with scheme 'away'" in ran.stderr
    told = {one["name"]: one["kit"] for one in json.loads(ran.stdout)["plugins"]}
    states = {name: {s["scheme"]: s["state"] for s in kit} for name, kit in told.items()}
    assert states["strange"]["sound"] == "passed"
    assert states["bad"]["worse"] == "failed"
    assert states["mem"] == {"mem": "passed"}
    assert {s["kind"]: s["state"] for s in told["mem"]} == dict.fromkeys(
        ("blob", "consensus", "oracle"), "passed"
    )


def test_the_list_needs_nothing_that_only_testers_install(shell: Shell) -> None:
    code = (
        "import sys\n"
        "sys.modules['hypothesis'] = None\n"
        "from mzsql.cli.app import app, report\n"
        "try:\n    app(sys.argv[1:], standalone_mode=False)\n"
        "except Exception as error:\n    sys.exit(report(error))\n"
    )

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", code, *arguments],
            env=shell.env,
            capture_output=True,
            text=True,
            check=False,
        )

    listed = run("plugins")
    assert listed.returncode == 0
    assert "sqlite" in listed.stdout
    refused = run("plugins", "test", "mem:x")
    assert refused.returncode == 1
    assert "pip install 'mzsql[testing]'" in refused.stderr


def _record(**changes: object) -> Record:
    made = Record(
        distribution="d/../x",
        version="1",
        scheme="s3",
        kind="blob",
        kit_version=1,
        mzsql_version="0",
        url="s3://b",
        level="quick",
        seed=0,
        ended_ms=0,
        passed=1,
        skipped=0,
    )
    return msgspec.structs.replace(made, **changes)


def test_records_are_kept_apart_replaced_and_read_again(tmp_path: Path) -> None:
    directory = tmp_path / "deep" / "kit"
    assert find("d/../x", "s3", "blob", directory) is None
    keep(_record(), directory)
    keep(_record(kind="oracle", failed=("a", "b")), directory)
    keep(_record(passed=9), directory)
    assert find("d/../x", "s3", "blob", directory) == _record(passed=9)
    assert find("d/../x", "s3", "oracle", directory) == _record(kind="oracle", failed=("a", "b"))
    files = sorted(directory.iterdir())
    assert len(files) == 2
    files[0].write_text("{not json")
    assert find("d/../x", "s3", "blob", directory) is None
    keep(_record(), directory)
    assert find("d/../x", "s3", "blob", directory) == _record()


def test_where_state_is_kept() -> None:
    assert state_directory({"XDG_STATE_HOME": "/s"}) == Path("/s/mzsql/kit")
    home = Path.home() / ".local/state/mzsql/kit"
    assert state_directory({}) == state_directory({"XDG_STATE_HOME": "relative"}) == home
