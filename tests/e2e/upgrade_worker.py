"""A process of one version whose sessions run random transactions while another version is put in charge: see test_e2e_upgrade.

Run as ``upgrade_worker.py ENV GENERATION FIRST FOLDER``: four sessions, numbered from FIRST on, each write what they do to a file of the
folder as `history_worker` says, until stdin ends or a session is fenced. What else fails is told on stderr.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from history_worker import READ, SETUP, Worker, found_in

import mzsql

SESSIONS = 4
VIEWS = """
ALTER SYSTEM SET step_engine = 'duckdb';
CREATE MATERIALIZED VIEW grouped_x AS SELECT v, count(*) AS n FROM x GROUP BY v;
CREATE MATERIALIZED VIEW plain_y AS SELECT v FROM y WHERE v > 0;
"""
#: As `READ`, but what is in tables is read from views of them.
READ_VIEWS = READ.replace("FROM x", "FROM grouped_x").replace("FROM y", "FROM plain_y")


class Session(Worker):
    """Reads views as well as tables."""

    def read(self) -> None:
        statement = self.rng.choice([READ, READ_VIEWS])
        self.do([], lambda: found_in(self.con.execute(statement).fetchall()))


def main(env: str, generation: str, first: str, folder: str) -> None:
    number, ends = int(first), threading.Event()
    cons = [mzsql.connect(env, deploy_generation=int(generation)) for _ in range(SESSIONS)]
    if number == 1:
        cons[0].execute(SETUP)
        cons[0].execute(VIEWS)

    def run(n: int, con: mzsql.Connection) -> None:
        with (Path(folder) / f"{n}.jsonl").open("a") as file:
            session = Session(con, n, file)
            while not (ends.is_set() or session.fenced):
                session.step()
            if not session.fenced:
                session.read()

    threads = [threading.Thread(target=run, args=one) for one in enumerate(cons, number)]
    for thread in threads:
        thread.start()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    ended = threading.Thread(target=lambda: (sys.stdin.read(), ends.set()), daemon=True)
    ended.start()
    for thread in threads:
        thread.join()
    if ends.is_set():
        refreshes = cons[0].coordinator.dataflows.controller.refreshes()
        hydrated = sum(one.kind == "hydration" for one in refreshes)
        sys.stdout.write(f"hydrated {hydrated}\n")
    for con in cons:
        try:
            con.close()
        except mzsql.OperationalError as failure:
            sys.stderr.write(f"closing: {failure}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
