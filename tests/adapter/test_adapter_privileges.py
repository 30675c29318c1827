"""GRANT and REVOKE: what is recorded, against a plain model; what SHOW and the catalog tell of it; what is refused."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

import mzsql

LETTERS = {"INSERT": "a", "SELECT": "r", "UPDATE": "w", "DELETE": "d"}


@pytest.fixture
def con(tmp_path: Path) -> Iterator[mzsql.Connection]:
    with mzsql.connect(str(tmp_path / "env")) as made:
        made.execute("CREATE ROLE joe; CREATE ROLE ann; CREATE TABLE t (a int)")
        made.execute("CREATE VIEW v AS SELECT a FROM t")
        yield made


def _rows(con: mzsql.Connection, text: str) -> list[tuple[object, ...]]:
    return con.execute(text).fetchall()


def _acl(con: mzsql.Connection, relation: str, name: str) -> list[str]:
    ((found,),) = _rows(con, f"SELECT privileges FROM {relation} WHERE name = '{name}'")
    assert isinstance(found, list)
    return found


def test_grants_add_up_and_revocations_take_away(con: mzsql.Connection) -> None:
    dice = random.Random(7)
    ids = {"mzsql": "u1", "joe": "u2", "ann": "u3", "public": ""}
    model: dict[str, set[str]] = {"mzsql": set(LETTERS)}
    for _ in range(25):
        words = dice.sample(sorted(LETTERS), dice.randint(1, 3))
        said = dice.choice([", ".join(words), "ALL", "ALL PRIVILEGES"])
        chosen = set(LETTERS) if said.startswith("ALL") else set(words)
        roles = dice.sample(sorted(ids), dice.randint(1, 2))
        if dice.random() < 0.5:
            con.execute(f"GRANT {said} ON {dice.choice(['', 'TABLE '])}t TO {', '.join(roles)}")
        else:
            con.execute(f"REVOKE {said} ON t FROM GROUP {', '.join(roles)}")
            chosen = {f"-{one}" for one in chosen}
        for role in roles:
            had = model.setdefault(role, set())
            had |= {one for one in chosen if one[0] != "-"}
            had -= {one[1:] for one in chosen}
        expected = [
            f"{ids[role]}={''.join(letter for word, letter in LETTERS.items() if word in model[role])}/u1"
            for role in ids
            if model.get(role)
        ]
        assert _acl(con, "mz_tables", "t") == expected
        shown = _rows(con, "SHOW PRIVILEGES ON TABLES")
        assert {(row[1], row[6]) for row in shown} == {
            ("PUBLIC" if role == "public" else role, word) for role in model for word in model[role]
        }


def test_what_things_begin_with_and_keep(con: mzsql.Connection, tmp_path: Path) -> None:
    con.execute("CREATE TYPE ints AS LIST (ELEMENT TYPE = int); CREATE SCHEMA s; CREATE DATABASE d")
    assert _acl(con, "mz_types", "ints") == ["u1=U/u1", "=U/u1"]
    assert _acl(con, "mz_schemas", "s") == _acl(con, "mz_databases", "d") == ["u1=UC/u1"]
    assert _acl(con, "mz_views", "v") == ["u1=r/u1"]
    assert _acl(con, "mz_clusters", "quickstart") == ["u1=UC/u1"]
    con.execute("GRANT SELECT ON v TO joe; GRANT USAGE ON SCHEMA s TO joe")
    con.execute("GRANT CREATE ON DATABASE d TO ann; GRANT USAGE ON CLUSTER quickstart TO public")
    con.execute("GRANT CREATEDB, CREATEROLE ON SYSTEM TO ann")
    con.execute("ALTER VIEW v RENAME TO w; ALTER VIEW w OWNER TO ann")
    con.close()
    with mzsql.connect(str(tmp_path / "env")) as again:
        assert _acl(again, "mz_views", "w") == ["u2=r/u3", "u3=r/u3"]
        assert _acl(again, "mz_schemas", "s") == ["u1=UC/u1", "u2=U/u1"]
        assert _acl(again, "mz_databases", "d") == ["u1=UC/u1", "u3=C/u1"]
        assert _acl(again, "mz_clusters", "quickstart") == ["u1=UC/u1", "=U/u1"]
        system = sorted(_rows(again, "SELECT privileges FROM mz_system_privileges"))
        assert system == [("u1=RBNP/u1",), ("u3=RB/u1",)]
        assert _rows(again, "SHOW PRIVILEGES ON SCHEMAS FOR joe") == [
            ("mzsql", "joe", "materialize", None, "s", "schema", "USAGE")
        ]
        assert _rows(again, "SELECT privileges FROM mz_objects WHERE name = 'w'") == [
            (["u2=r/u3", "u3=r/u3"],)
        ]
        asked = "SHOW PRIVILEGES FOR joe WHERE object_type = 'view' OR name = 'nothing'"
        assert _rows(again, asked) == [
            ("ann", "joe", "materialize", "public", "w", "view", "SELECT")
        ]
        granted = "SELECT grantor, table_name, privilege_type FROM information_schema.{} WHERE grantee = 'joe'"
        for relation in ("table_privileges", "role_table_grants"):
            assert _rows(again, granted.format(relation)) == [("ann", "w", "SELECT")]


def test_all_there_is_in_a_place(con: mzsql.Connection) -> None:
    con.execute("CREATE SCHEMA s; CREATE TABLE s.a (x int); CREATE VIEW s.b AS SELECT x FROM s.a")
    con.execute("GRANT SELECT ON ALL TABLES IN SCHEMA s TO joe")
    con.execute("GRANT USAGE ON ALL SCHEMAS IN DATABASE materialize TO ann")
    assert _acl(con, "mz_tables", "a") == ["u1=arwd/u1", "u2=r/u1"]
    assert _acl(con, "mz_views", "b") == ["u1=r/u1", "u2=r/u1"]
    assert _acl(con, "mz_tables", "t") == ["u1=arwd/u1"]
    assert _acl(con, "mz_schemas", "s") == ["u1=UC/u1", "u3=U/u1"]
    con.execute("REVOKE ALL ON ALL TABLES IN SCHEMA s, public FROM joe")
    assert _rows(con, "SHOW PRIVILEGES FOR joe") == []
    con.execute("GRANT USAGE ON ALL CLUSTERS TO joe")
    assert _acl(con, "mz_clusters", "quickstart") == ["u1=UC/u1", "u2=U/u1"]


def test_memberships_are_shown(con: mzsql.Connection) -> None:
    con.execute("GRANT joe TO ann")
    assert _rows(con, "SHOW ROLE MEMBERSHIP") == [("joe", "ann", "mzsql")]
    assert _rows(con, "SHOW ROLE MEMBERSHIP FOR ann") == [("joe", "ann", "mzsql")]
    assert _rows(con, "SHOW ROLE MEMBERSHIP FOR joe") == []


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        (
            "GRANT INSERT, SELECT ON v TO joe",
            'invalid privilege types INSERT for VIEW "materialize.public.v"',
        ),
        ("GRANT USAGE ON t TO joe", "invalid privilege types USAGE for TABLE"),
        ("GRANT SELECT ON SCHEMA public TO joe", "invalid privilege types SELECT for SCHEMA"),
        ("GRANT CREATEDB ON t TO joe", "invalid privilege types CREATEDB for TABLE"),
        ("GRANT SELECT ON SYSTEM TO joe", "invalid privilege types SELECT for SYSTEM"),
        ("GRANT SELECT ON t TO nobody", "unknown role 'nobody'"),
        ("GRANT SELECT ON nothing TO joe", "unknown catalog item 'nothing'"),
        ("REVOKE USAGE ON SCHEMA nowhere FROM joe", "unknown schema 'nowhere'"),
        ("GRANT USAGE ON DATABASE nowhere TO joe", "unknown database 'nowhere'"),
        ("GRANT USAGE ON CLUSTER nowhere TO joe", "unknown cluster 'nowhere'"),
        ("GRANT SELECT ON mz_tables TO joe", "system item 'mz_catalog.mz_tables' cannot be"),
        ("GRANT SELECT ON mz_relations TO joe", "system item 'mz_catalog.mz_relations' cannot be"),
        ("GRANT USAGE ON SCHEMA mz_catalog TO joe", "system schema 'mz_catalog' cannot be"),
        ("GRANT USAGE ON SECRET s TO joe", "there are no secrets"),
        ("GRANT SELECT t TO joe", "Expected ON"),
        ("GRANT SELECT ON t FROM joe", "Expected TO"),
        ("GRANT FLY ON t TO joe", "Expected TO"),
    ],
)
def test_what_cannot_be_granted_is_refused(con: mzsql.Connection, sql: str, message: str) -> None:
    with pytest.raises(mzsql.Error) as raised:
        con.execute(sql)
    assert message in str(raised.value)
    assert _rows(con, "SHOW PRIVILEGES FOR joe") == []


def test_a_role_with_privileges_stays(con: mzsql.Connection) -> None:
    con.execute("GRANT SELECT ON t TO joe; GRANT CREATEDB ON SYSTEM TO joe")
    with pytest.raises(mzsql.Error, match="cannot be dropped because some objects depend on it"):
        con.execute("DROP ROLE joe")
    con.execute("REVOKE SELECT ON t FROM joe; REVOKE ALL ON SYSTEM FROM joe; DROP ROLE joe")
    assert _acl(con, "mz_tables", "t") == ["u1=arwd/u1"]


def test_what_a_role_owns_is_given_to_another(con: mzsql.Connection) -> None:
    con.execute("CREATE SCHEMA s; CREATE INDEX i ON t (a); GRANT SELECT ON t TO ann")
    con.execute(
        "ALTER TABLE t OWNER TO joe; ALTER SCHEMA s OWNER TO joe; ALTER INDEX i OWNER TO joe"
    )
    con.execute("REASSIGN OWNED BY joe, mzsql TO ann")
    owners = "SELECT DISTINCT owner_id FROM mz_objects WHERE id LIKE 'u%'"
    assert _rows(con, owners) == [("u3",)]
    assert _rows(con, "SELECT owner_id FROM mz_schemas WHERE name = 's'") == [("u3",)]
    assert _acl(con, "mz_tables", "t") == ["u3=arwd/u3"]
    con.execute("DROP ROLE joe")
    for asked in ("REASSIGN OWNED BY joe TO ann", "REASSIGN OWNED BY ann TO joe"):
        with pytest.raises(mzsql.Error, match="unknown role 'joe'"):
            con.execute(asked)


def test_what_a_role_owns_is_dropped(con: mzsql.Connection) -> None:
    con.execute(
        "CREATE SCHEMA s; CREATE TABLE s.x (a int); CREATE DATABASE d; CREATE TABLE mine (a int)"
    )
    con.execute(
        "CREATE CLUSTER c SIZE '1'; GRANT SELECT ON t TO joe; GRANT CREATEDB ON SYSTEM TO joe"
    )
    for thing in ("SCHEMA s", "DATABASE d", "TABLE mine", "CLUSTER c"):
        con.execute(f"ALTER {thing} OWNER TO joe")
    with pytest.raises(mzsql.Error, match="cannot be dropped without CASCADE"):
        con.execute("DROP OWNED BY joe")
    assert _rows(con, "SELECT name FROM (SHOW TABLES) ORDER BY 1") == [("mine",), ("t",)]
    con.execute("DROP OWNED BY joe CASCADE")
    assert _rows(con, "SELECT name FROM mz_tables ORDER BY 1") == [("t",)]
    assert _rows(con, "SELECT name FROM mz_schemas WHERE name = 's'") == []
    assert _rows(con, "SELECT name FROM mz_databases") == [("materialize",)]
    clusters = _rows(con, "SELECT name FROM mz_clusters ORDER BY name")
    assert clusters == [("mz_catalog_server",), ("quickstart",)]
    assert _acl(con, "mz_tables", "t") == ["u1=arwd/u1"]
    con.execute("DROP ROLE joe; CREATE TABLE mine (b int); INSERT INTO mine VALUES (1)")
    assert _rows(con, "SELECT b FROM mine") == [(1,)]
