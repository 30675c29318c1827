"""Which Python Spark asks for the data source ``mzsql``.

Spark's JVM looks Python data sources up, plans their reads and runs their tasks with the Python that ``PYSPARK_DRIVER_PYTHON``
names when the JVM starts, else ``PYSPARK_PYTHON``, else ``python3`` of ``PATH``; no setting of a session changes that. The
``python3`` of a process whose virtual environment is not activated has no mzsql, and Spark then says that there is no
such format. So a process that has mzsql names its own Python, where nobody has named one.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import MutableMapping
from pathlib import Path

_DRIVER = "PYSPARK_DRIVER_PYTHON"


def name_driver_python(environ: MutableMapping[str, str]) -> None:
    """Name this process's Python in an environment for Spark's JVM, where it would take one that may lack mzsql.

    Only what the JVM takes for data sources is named: executors take ``PYSPARK_PYTHON`` for functions of the user's, and may not have
    this Python's path.
    """
    named = _DRIVER in environ or "PYSPARK_PYTHON" in environ
    submitted = "PYSPARK_GATEWAY_PORT" in environ  # there is a JVM already
    if named or submitted or not sys.executable or _has_settings(environ) or _is_default(environ):
        return
    environ[_DRIVER] = sys.executable


def _is_default(environ: MutableMapping[str, str]) -> bool:
    """Whether ``python3`` of the path is this Python: Spark finds it, on executors by their own paths."""
    default = shutil.which("python3", path=environ.get("PATH"))
    if default is None:
        return False
    same_place = Path(default).parent.resolve() == Path(sys.executable).parent.resolve()
    return same_place and Path(default).samefile(sys.executable)


def _has_settings(environ: MutableMapping[str, str]) -> bool:
    """Whether the installation of Spark has a script of settings, which may name a Python."""
    home, conf = environ.get("SPARK_HOME"), environ.get("SPARK_CONF_DIR")
    place = Path(conf) if conf else Path(home) / "conf" if home else None
    return place is not None and (place / "spark-env.sh").exists()
