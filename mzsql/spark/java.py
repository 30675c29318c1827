"""Whether Spark will find a Java it can run on, told in one line before Spark tells it in forty."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from mzsql.repr.errors import SqlError

MINIMUM_JAVA = 17

_HINT = "Install one (on Debian and Ubuntu: apt install openjdk-17-jre-headless) or set JAVA_HOME."
_VERSION = re.compile(r'version "(\d+)')


class JavaMissing(SqlError):
    """Spark needs a Java that is not there, or is too old."""

    sqlstate = "58000"


def require_java() -> None:
    """Check that the Java which Spark would start is there and new enough.

    Raises:
        JavaMissing: there is none, it does not run, or it is older than `MINIMUM_JAVA`.
    """
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if java is None:
        raise JavaMissing(
            f"Java {MINIMUM_JAVA} or newer is needed, and there is no java", hint=_HINT
        )
    try:
        told = subprocess.run(  # noqa: S603  the very program that Spark is about to run
            [java, "-version"], capture_output=True, text=True, check=True, timeout=30
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise JavaMissing(
            f"Java {MINIMUM_JAVA} or newer is needed, and {java!r} does not run", hint=_HINT
        ) from error
    version = _VERSION.search(told.stderr + told.stdout)
    if version is None:
        raise JavaMissing(
            f"Java {MINIMUM_JAVA} or newer is needed, and {java!r} tells no version", hint=_HINT
        )
    if int(version.group(1)) < MINIMUM_JAVA:
        raise JavaMissing(
            f"Java {MINIMUM_JAVA} or newer is needed, and {java!r} is version {version.group(1)}",
            hint=_HINT,
        )
