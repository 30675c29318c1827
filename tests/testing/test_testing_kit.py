"""The kit by URL and under pytest: what it touches, what it leaves, what it reports, and what a backend may declare."""

from __future__ import annotations

import os
import subprocess
import sys
import unittest

import msgspec
import pytest

from mzsql.location import (
    ContestedScheme,
    Determinate,
    InvalidUrl,
    Registry,
    Serves,
    UnknownScheme,
    UsageError,
    Versioned,
    hookimpl,
    open_blob,
    open_consensus,
    open_oracle,
)
from mzsql.testing import (
    BLOB_CASES,
    KIT_VERSION,
    BlobContract,
    KitReport,
    case_names,
    run_kit,
)
from mzsql.testing.expect import expect_equal
from mzsql.testing.prefixed import prefixed_blob

_QUICK = ["odd_keys", "list_by_prefix", "two_handles", "faults", "refused_keys"]


def test_a_store_in_use_is_left_as_it_was(tmp_path):
    """Keys outside the kit's prefix are neither changed nor seen, and the kit's own objects go."""
    blob = open_blob(f"file:{tmp_path}/blob")
    store = open_consensus(f"sqlite:{tmp_path}/c.db")
    oracle = open_oracle(f"sqlite:{tmp_path}/c.db", "t", lambda: 5)
    objects = {f"{part}/mine": part.encode() for part in ("a", "b", "mzsql-kit-not", "x", "k")}
    for key, value in objects.items():
        blob.set(key, value)
    store.compare_and_set("k", None, Versioned(0, b"mine"))
    oracle.apply_write(7)
    assert run_kit(f"file:{tmp_path}/blob", cases=_QUICK).passed
    report = run_kit(f"sqlite:{tmp_path}/c.db", cases=[*_QUICK, "fresh"])
    assert report.passed
    assert report.kinds == ("consensus", "oracle")
    listed = {key: blob.get(key) for key, _ in blob.list_keys_and_metadata("")}
    assert listed == objects
    assert store.scan("k", 0, 10) == [Versioned(0, b"mine")]
    assert (oracle.read_ts(), oracle.peek_write_ts()) == (7, 7)
    left = [key for key in store.list_keys() if key != "k"]
    assert left
    assert all(key.startswith("mzsql-kit-") for key in left)
    assert all(len(store.scan(key, 0, 10)) == 1 for key in left)


def test_the_report_says_what_ran_and_is_data(tmp_path):
    told = []
    report = run_kit(f"mem:{tmp_path}", kinds=["oracle"], seed=3, on_case=told.append)
    assert report.passed
    assert tuple(told) == report.results
    assert tuple(one.name for one in told) == case_names("oracle")
    skipped = {one.name: one.message for one in told if one.outcome == "skipped"}
    assert set(skipped) == {"processes", "killed_processes", "forked"}
    assert all("one process" in message for message in skipped.values())
    assert (report.kit_version, report.seed, report.level) == (KIT_VERSION, 3, "quick")
    assert msgspec.json.decode(msgspec.json.encode(report), type=KitReport) == report


def test_what_cannot_be_run_is_an_error(tmp_path):
    with pytest.raises(UsageError, match="no case 'oddkeys'"):
        run_kit(f"mem:{tmp_path}", cases=["oddkeys"])
    with pytest.raises(UsageError, match="no kind of backend 'blobs'"):
        run_kit(f"mem:{tmp_path}", kinds=["blobs"])
    with pytest.raises(UnknownScheme, match="no installed plugin serves the scheme 'nobody'"):
        run_kit("nobody:x")
    with pytest.raises(UsageError, match="none of the cases absent is of oracle,"):
        run_kit(f"mem:{tmp_path}", kinds=["oracle"], cases=["absent"])
    with pytest.raises(UnknownScheme):
        run_kit(f"file:{tmp_path}", kinds=["oracle"])
    with pytest.raises(InvalidUrl):
        run_kit("no scheme")
    (tmp_path / "file").write_text("")
    with pytest.raises(Determinate):
        run_kit(f"file:{tmp_path}/file/below")


def test_known_failures_are_skips_and_unknown_successes_failures(tmp_path):
    url = f"mem:{tmp_path}"
    report = run_kit(
        url, kinds=["blob"], cases=["absent"], not_met={"blob.absent": "takes its time"}
    )
    [result] = report.failed
    assert "listed as not met (takes its time), yet it is met" in result.message
    assert not report.passed
    with pytest.raises(UsageError):
        run_kit(url, not_met={"blob.never": "?"})


def test_a_scheme_that_two_serve_is_not_left_out():
    class Both:
        @hookimpl
        def mzsql_serves(self):
            return [Serves(kind, ("both",), "both:") for kind in ("blob", "consensus")]

        @hookimpl
        def mzsql_open_blob(self, url):
            return open_blob(f"mem:{url.path}")

        @hookimpl
        def mzsql_open_consensus(self, url):
            return open_consensus(f"mem:{url.path}")

    class OneOfThem:
        @hookimpl
        def mzsql_serves(self):
            return [Serves("blob", ("both",), "both:")]

        mzsql_open_blob = Both.mzsql_open_blob

    registry = Registry([("one", Both()), ("two", OneOfThem())], discover=False)
    with pytest.raises(ContestedScheme, match="scheme 'both': one, two"):
        run_kit("both:x", cases=["two_handles"], registry=registry)
    alone = run_kit("both:x", kinds=["consensus"], cases=["two_handles"], registry=registry)
    assert alone.passed


class _Untyped:
    """A Blob of one process that fails as no backend may, and whose text shows the URL's secret."""

    def __init__(self, url):
        self.url = url

    def __getattr__(self, name):
        def act(*_):
            raise RuntimeError(f"cannot {name} at {self.url}")

        return act

    def close(self):
        pass


def test_a_failure_is_told_without_secrets_and_with_how_to_run_it_again():
    class Plugin:
        @hookimpl
        def mzsql_open_blob(self, url):
            return _Untyped(url.geturl()) if url.scheme == "untyped" else None

    registry = Registry([("untyped", Plugin())], discover=False)
    report = run_kit(
        "untyped://me:hush-hush@host/x", cases=["blob.absent"], seed=9, registry=registry
    )
    [result] = report.failed
    assert "RuntimeError: cannot get at" in result.message
    assert "blob_cases.py" in result.message
    assert "hush-hush" not in result.message + report.url
    *_, secret, last = result.message.splitlines()
    assert secret == "The backend's own text shows a secret of the URL, hidden here."
    assert last == (
        "Run it again: run_kit('untyped://me:***@host/x', cases=['blob.absent'], level='quick', seed=9)"
    )


def test_a_listing_that_skips_is_told_by_what_it_lacks():
    keys = {f"a/key/{n}" for n in range(100)}
    for found, difference in (
        (keys - {"a/key/7"}, "missing {'a/key/7'} (expected 100, found 99)"),
        (keys | {"b"}, "unexpected {'b'} (expected 100, found 101)"),
    ):
        with pytest.raises(AssertionError) as failed:
            expect_equal(found, keys, "listing")
        assert str(failed.value) == f"listing: {difference}"
    with pytest.raises(AssertionError, match=r"torn reads: expected none, found \['3 bytes'\]"):
        expect_equal(["3 bytes"], [], "torn reads")


def test_the_kit_runs_where_there_is_no_pytest(tmp_path):
    code = (
        "import sys\n"
        "sys.modules['pytest'] = sys.modules['_pytest'] = None\n"
        "from mzsql.testing import run_kit\n"
        f"report = run_kit('mem:{tmp_path}', kinds=['oracle'], cases=['state_machine'])\n"
        f"more = run_kit('file:{tmp_path}/blob', cases=['absent', 'processes'])\n"
        "assert report.passed and more.passed, report.failed + more.failed\n"
        "assert len(report.results + more.results) == 3\n"
    )
    env = {**os.environ, "PYTHONPATH": ""}
    subprocess.run([sys.executable, "-c", code], check=True, env=env, timeout=300)


def test_a_contract_names_its_exceptions_rightly():
    with pytest.raises(TypeError, match="names no case of the kit: 'nothing'"):

        class Wrong(BlobContract):
            not_met = {"nothing": "?"}  # noqa: RUF012


def test_a_contract_runs_the_cases_as_tests(tmp_path):
    class OnMemory(BlobContract):
        processes = False
        not_met = {"absent": "as a trial"}  # noqa: RUF012

        def url(self, place):
            return f"mem:{place}"

    names = {name for name in dir(OnMemory) if name.startswith("test_")}
    assert names == {f"test_{one.name}" for one in BLOB_CASES}
    OnMemory().test_set_get_overwrite(tmp_path)
    with pytest.raises(AssertionError, match="yet it is met") as caught:
        OnMemory().test_absent(tmp_path)
    assert "MZSQL_KIT_SEED=0" in caught.value.__notes__[0]
    with pytest.raises(unittest.SkipTest, match="one process"):
        OnMemory().test_processes(tmp_path)


class _Fixed(BlobContract):
    """One URL for all places: tests find nothing of each other, because each has a prefix."""

    def url(self, place):
        return f"file:{place.parent}/shared"


def test_one_url_serves_all_places(tmp_path):
    open_blob(f"file:{tmp_path}/shared").set("other", b"not the test's")
    for number in range(2):
        place = tmp_path / str(number)
        place.mkdir()
        _Fixed().test_absent(place)
        _Fixed().test_list_by_prefix(place)
    left = [key for key, _ in open_blob(f"file:{tmp_path}/shared").list_keys_and_metadata("")]
    assert left == ["other"]


def test_cleaning_up_is_part_of_the_case(tmp_path):
    class NeverDeletes(BlobContract):
        def open_blob(self, place):
            blob = open_blob(f"mem:{place}")

            class Kept(type(blob)):
                def delete(self, key):  # noqa: ARG002
                    raise Determinate("no deletions today")

            blob.__class__ = Kept
            return blob

    with pytest.raises(AssertionError, match="could not clean up after the case: Determinate"):
        NeverDeletes().test_list_by_prefix(tmp_path)


def test_a_view_below_a_prefix_keeps_abilities_and_refusals(tmp_path):
    from mzsql.location import Adoptable, RangeReadable, SparkReadable

    inner = open_blob(f"file:{tmp_path}")
    view = prefixed_blob(inner, "p/")
    for ability in (Adoptable, RangeReadable, SparkReadable):
        assert isinstance(view, ability)
    assert not isinstance(prefixed_blob(open_blob("mem:"), "p/"), SparkReadable)
    assert prefixed_blob(inner, "") is inner
    for key in ("../out", "", "/x"):
        with pytest.raises(UsageError):
            view.set(key, b"")
    view.set("k", b"v")
    assert inner.get("p/k") == b"v"
