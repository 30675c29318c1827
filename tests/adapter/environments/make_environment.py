"""Make the small environment that is kept of each format that was released: ``python make_environment.py OUT.zip``.

It has one of everything that is durable. Run it by the release whose format is to be kept; what is kept is never made again.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import mzsql

SETUP = """
ALTER SYSTEM SET step_engine = 'duckdb';
CREATE SCHEMA shop;
CREATE TABLE shop.orders (id int NOT NULL, customer text, amount numeric(10, 2), at timestamp);
COMMENT ON TABLE shop.orders IS 'what was ordered';
INSERT INTO shop.orders VALUES (1, 'ann', 10.50, '2026-01-01 00:00:00'), (2, 'bob', 4.25, NULL), (3, 'ann', 1.00, '2026-01-03 12:00:00');
DELETE FROM shop.orders WHERE id = 2;
CREATE VIEW shop.recent AS SELECT id, customer FROM shop.orders WHERE at >= '2026-01-02';
CREATE MATERIALIZED VIEW shop.totals AS SELECT customer, sum(amount) AS total, count(*) AS n FROM shop.orders GROUP BY customer;
CREATE INDEX totals_customer ON shop.totals (customer);
CREATE MATERIALIZED VIEW shop.best AS SELECT customer, total FROM shop.totals ORDER BY total DESC LIMIT 1;
CREATE ROLE clerk;
GRANT SELECT ON shop.orders TO clerk;
CREATE CLUSTER side SIZE '1';
CREATE TABLE shop.dropped (a int);
DROP TABLE shop.dropped
"""

#: What is asked of such an environment, and the answers.
ANSWERS = {
    "SELECT id, customer, amount::text, at::text FROM shop.orders ORDER BY id": [
        (1, "ann", "10.5", "2026-01-01 00:00:00"),
        (3, "ann", "1", "2026-01-03 12:00:00"),
    ],
    "SELECT id, customer FROM shop.recent": [(3, "ann")],
    "SELECT customer, total::text, n FROM shop.totals": [("ann", "11.5", 2)],
    "SELECT total::text FROM shop.totals WHERE customer = 'ann'": [("11.5",)],
    "SELECT customer, total::text FROM shop.best": [("ann", "11.5")],
    "SELECT name FROM mz_catalog.mz_roles WHERE name = 'clerk'": [("clerk",)],
    "SELECT name FROM mz_catalog.mz_clusters WHERE name = 'side'": [("side",)],
    "SELECT comment FROM mz_internal.mz_comments WHERE id LIKE 'u%'": [("what was ordered",)],
}


def main(out: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "env"
        with mzsql.connect(str(place)) as con:
            con.execute(SETUP)
            for question, answer in ANSWERS.items():
                found = con.execute(question).fetchall()
                assert found == answer, (question, found)
        shutil.make_archive(out.removesuffix(".zip"), "zip", folder)


if __name__ == "__main__":
    main(sys.argv[1])
