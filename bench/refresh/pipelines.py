"""Case k: the changes of case c beside what users would take instead: DuckDB and Spark recomputing, and Spark Declarative Pipelines.

The pipeline has TPC-H's queries as its materialized views, over Parquet files of the rows as they are after the changes, and is run by its
own command (`spark-pipelines run`), twice, as the first run creates the tables; the second, which refreshes them, counts. Its command
starts a JVM each time; so beside the whole command stands what passes from the first flow being planned until the run is completed, by
the lines that it prints. It is left out, and said so, where `pyspark[pipelines]` is not installed.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

import pyspark
from batches import SHARE, Change, at_scale, run
from figures import Case, median
from meter import Meter
from options import Options
from tpch import query

from mzsql.cli.demo import TABLES

#: The second run knows the tables of the first: the catalog in memory forgets them.
_KEEPS_TABLES = ("--conf", "spark.sql.catalogImplementation=hive")

_SPEC = """name: tpch
storage: {storage}
libraries:
  - glob:
      include: transformations/**
configuration:
  spark.sql.shuffle.partitions: "{cores}"
"""


def pipelines(options: Options, meter: Meter) -> Case:
    """At each scale, with random keys."""
    case = Case(
        "k", f"{SHARE:.2%} of the orders arrive and as many leave: all views beside others, s"
    )
    for scale in options.scales:
        with at_scale(options, scale) as (at, number):
            change = Change("random", max(1, round(SHARE * number)))
            for series in run(at, [change], options, meter):
                recomputed = series.recomputed.all_of_them()
                row: dict[str, float | None] = {
                    "mzsql all views": median(series.fresh),
                    **{
                        f"{who} recomputing": sum(took.values()) for who, took in recomputed.items()
                    },
                }
                command, refresh = _declarative(
                    at.folder, at.folder / "series0" / "after", options.queries, case
                )
                case.row(
                    scale=f"{scale:g}",
                    **row,
                    Pipelines_refresh=refresh,
                    Pipelines_command=command,
                )
    return case


def _declarative(
    folder: Path, files: Path, views: Sequence[str], case: Case
) -> tuple[float | None, float | None]:
    """Seconds of the refreshing command and of the refresh in it; none where it is not installed."""
    command = Path(sys.executable).parent / "spark-pipelines"
    if not command.exists() or importlib.util.find_spec("grpc") is None:
        case.notes.append(
            "Spark Declarative Pipelines left out: pip install 'pyspark[pipelines]' brings it"
        )
        return None, None
    project = folder / "pipeline"
    (project / "transformations").mkdir(parents=True)
    storage = (folder / "storage").as_uri()
    (project / "spark-pipeline.yml").write_text(_SPEC.format(storage=storage, cores=os.cpu_count()))
    statements = [
        f"CREATE TEMPORARY VIEW {table} AS SELECT * FROM parquet.`{files}/{table}.parquet`"
        for table in TABLES
    ]
    statements += [f"CREATE MATERIALIZED VIEW {view} AS {query(view, 'spark')}" for view in views]
    (project / "transformations" / "tpch.sql").write_text(";\n".join(statements) + ";\n")
    _run(command, project)
    return _run(command, project)


def _run(command: Path, project: Path) -> tuple[float, float]:
    environment = {
        **os.environ,
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    begun = perf_counter()
    planned, completed, said = 0.0, 0.0, []
    with subprocess.Popen(
        [str(command), "run", "--remote", f"local[{os.cpu_count()}]", *_KEEPS_TABLES],
        cwd=project,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            said.append(line)
            if "is PLANNING" in line and not planned:
                planned = perf_counter()
            if "Run is COMPLETED" in line:
                completed = perf_counter()
    if process.returncode or not completed:
        raise SystemExit(f"the pipeline has failed:\n{''.join(said[-30:])}")
    return perf_counter() - begun, completed - planned
