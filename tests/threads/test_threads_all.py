"""Every thread that the engine or a plugin starts is supervised, or is named here with the reason why it need not be."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]

#: Where a thread is made without the supervisor, and what takes its place.
REASONS = {
    "mzsql/threads/supervisor.py Thread": "the supervisor itself",
    "mzsql/threads/priority.py ThreadPoolExecutor": "starts what others ask for, who wait for that and get what it raises",
    "mzsql/compute/engines/spark_start.py Thread": "one attempt: its failure is raised where the session is waited for; a call tries again",
    "mzsql/compute/engines/paths.py Thread": "one question: its caller waits for the answer, bounded, and takes silence for no",
    "mzsql/adapter/replicas/places.py ThreadPoolExecutor": "each asks one replica, and who wants the answers waits for them",
    "mzsql/compute/peek/spark.py ThreadPoolExecutor": "one query: its caller waits for the result, and gets what it raises",
    "mzsql/persist/fetch.py ThreadPoolExecutor": "questions of one call, which waits for them and gets what they raise",
    "mzsql/persist/parts.py ThreadPoolExecutor": "deletes of one call, which waits for them and gets what they raise",
    "mzsql/persist/uploads.py ThreadPoolExecutor": "uploads of one call, which waits for them and gets what they raise",
    "mzsql/cli/kit_watch.py Thread": "ends the process when a kit hangs: it has no other work, and runs for the length of a command",
    "mzsql/cli/serve_replicas.py Thread": "passes on what one process says, and ends with it: it has no other work",
    "mzsql/adapter/planning/process.py Thread": "waits for a process that plans: without it plans are made where they are asked for",
    "mzsql/cli/stopping.py Thread": "waits for the end of standard input, and is the process's",
    "plugins/mzsql-s3/src/mzsql_s3/client.py ThreadPoolExecutor": "requests of one call, which waits for them and gets what they raise",
}
_MAKERS = ("Thread", "Timer", "ThreadPoolExecutor", "ProcessPoolExecutor", "start_new_thread")


def test_every_thread_is_supervised_or_has_a_reason() -> None:
    sources = [*(ROOT / "mzsql").rglob("*.py"), *(ROOT / "plugins").glob("*/src/**/*.py")]
    found = set()
    for path in sources:
        name = path.relative_to(ROOT).as_posix()
        if name.startswith("mzsql/testing/"):
            continue  # the kits' threads are their tests'
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                called = node.func
                maker = (
                    called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
                )
                if maker in _MAKERS:
                    found.add(f"{name} {maker}")
    assert found == REASONS.keys()
