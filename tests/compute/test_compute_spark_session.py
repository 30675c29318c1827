"""Starting Spark: quiet where it works, one line where it cannot."""

from __future__ import annotations

import os
import stat
import subprocess
import sys

import pytest

from mzsql.compute.engines.spark_session import (
    hydration_session,
    java_version,
    local_session,
    require_java,
    step_session,
)
from mzsql.repr.errors import EnvironmentRefused


def fake_java(tmp_path, monkeypatch, version):
    """A program named java that says its version as the real ones do."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2020-01-01' >&2\n")
    java.chmod(java.stat().st_mode | stat.S_IEXEC)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))


@pytest.mark.parametrize(
    ("text", "major"), [("17.0.15", 17), ("1.8.0_402", 8), ("21", 21), ("11.0.2", 11)]
)
def test_the_version_is_read(tmp_path, monkeypatch, text, major):
    fake_java(tmp_path, monkeypatch, text)
    assert java_version() == major


def test_a_java_is_asked_once_and_another_one_anew(tmp_path, monkeypatch):
    (tmp_path / "old").mkdir()
    fake_java(tmp_path / "old", monkeypatch, "17.0.15")
    java = tmp_path / "old" / "bin" / "java"
    java.write_text(java.read_text() + f"echo x >> '{tmp_path}/asked'\n")
    assert [java_version(), java_version()] == [17, 17]
    assert (tmp_path / "asked").read_text() == "x\n"
    java.write_text(java.read_text().replace("17.0.15", "11.0.2 "))
    assert java_version() == 11


def test_a_java_that_could_not_start_is_asked_again(tmp_path, monkeypatch):
    fake_java(tmp_path, monkeypatch, "17.0.15")
    java, short = tmp_path / "bin" / "java", tmp_path / "short of memory"
    told = java.read_text().removeprefix("#!/bin/sh\n")
    failure = "Error occurred during initialization of VM"
    java.write_text(
        f"#!/bin/sh\nif [ -e '{short}' ]; then echo '{failure}' >&2; exit 1; fi\n{told}"
    )
    short.touch()
    with pytest.raises(EnvironmentRefused):
        require_java()
    short.unlink()
    require_java()
    assert java_version() == 17


def test_an_old_java_is_refused_in_one_line(tmp_path, monkeypatch):
    fake_java(tmp_path, monkeypatch, "11.0.2")
    with pytest.raises(EnvironmentRefused, match=r"Java 17 or newer is needed .* version 11") as e:
        require_java()
    assert "\n" not in str(e.value)


def test_no_java_is_refused_in_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        EnvironmentRefused, match=r"Java 17 or newer is needed .* no java was found"
    ) as e:
        require_java()
    assert "\n" not in str(e.value)


@pytest.mark.spark
def test_the_active_session_is_used(spark):
    assert local_session().sparkContext is spark.sparkContext
    assert spark.sparkContext.getConf().get("spark.scheduler.mode") == "FAIR"


@pytest.mark.spark
def test_sessions_do_not_share_views_or_settings(spark):
    step, hydration = step_session(spark), hydration_session(spark, workers=3)
    step.range(1).createOrReplaceTempView("arr_3")
    assert not hydration.catalog.tableExists("arr_3")
    assert step.conf.get("spark.sql.shuffle.partitions") == "1"
    assert hydration.conf.get("spark.sql.shuffle.partitions") == "3"
    for session in (step, hydration):
        assert session.conf.get("spark.sql.decimalOperations.allowPrecisionLoss") == "false"
        assert session.sql("SELECT timestamp'2026-01-01 00:00:00' t").toArrow().schema.field(
            "t"
        ).type.tz in ("UTC", "Etc/UTC")


@pytest.mark.spark
@pytest.mark.long
def test_starting_says_nothing(tmp_path):
    """In a process of its own: nothing on either stream, and workers run this interpreter."""
    program = (
        "import os, sys\n"
        "from mzsql.compute.engines.spark_session import local_session\n"
        "s = local_session(cores=2)\n"
        "assert s.range(3).count() == 3\n"
        "assert os.environ['PYSPARK_PYTHON'] == sys.executable\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=500,
        env={**os.environ},
        cwd=tmp_path,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert list(tmp_path.iterdir()) == []
