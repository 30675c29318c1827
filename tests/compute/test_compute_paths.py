"""Sessions are asked what they can open, once, and what they cannot is said."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import pytest

from mzsql.compute.engines import paths
from mzsql.compute.engines.paths import can_open, why_not
from mzsql.compute.engines.spark_session import step_session

pytestmark = pytest.mark.spark


def test_a_session_is_asked_once_and_the_reason_told_once(spark, monkeypatch, caplog):
    session, other = step_session(spark), step_session(spark)
    asked = []
    look = paths._look
    monkeypatch.setattr(paths, "_look", lambda *given: asked.append(given) or look(*given))
    with caplog.at_level(logging.WARNING, "mzsql.compute.engines.paths"):
        for one in (session, session, other):
            reason = why_not(one, "neverfs://bucket/a/b.parquet")
            assert reason is not None
            assert "neverfs" in reason
            assert "\n" not in reason
        assert not can_open(session, "neverfs://bucket/another")
    assert len(asked) == 1
    (told,) = [record.getMessage() for record in caplog.records]
    assert told.startswith("Spark cannot open neverfs://bucket (")
    assert "class path" in told
    assert not can_open(session, "neverfs://user:hush@elsewhere/x")
    assert len(asked) == 2
    assert "hush" not in caplog.text


def test_what_hadoop_has_no_classes_for_cannot_be_opened(spark):
    reason = why_not(step_session(spark), "s3a://bucket/prefix/x")
    assert reason is None or "S3AFileSystem" in reason


def test_local_files_can_be_opened_there_or_not(spark, tmp_path: Path):
    session = step_session(spark)
    (tmp_path / "there").mkdir()
    for path in (str(tmp_path / "there"), f"file://{tmp_path}/there", f"file:{tmp_path}/none"):
        assert can_open(session, path)
    assert not can_open(session, None)


def test_other_settings_are_asked_anew_and_a_no_after_a_while(spark, monkeypatch):
    session, other = step_session(spark), step_session(spark)
    other.conf.set("fs.lazyfs.impl", "no.such.Class")
    assert "No FileSystem" in why_not(session, "lazyfs://a/b")
    assert "no.such.Class" in why_not(other, "lazyfs://a/b")
    monkeypatch.setattr(paths, "_look", lambda *_: None)
    assert not can_open(session, "lazyfs://a/b")
    monkeypatch.setattr(paths, "ASK_AGAIN_SECONDS", 0.0)
    assert can_open(session, "lazyfs://a/b")


def test_a_session_that_does_not_answer_cannot(spark, monkeypatch):
    monkeypatch.setattr(paths, "ASK_SECONDS", 0.0)
    ended = threading.Event()
    monkeypatch.setattr(paths, "_look", lambda *_: ended.wait(30) and None)
    assert "has not answered" in why_not(step_session(spark), "slowfs://a/b")
    ended.set()
