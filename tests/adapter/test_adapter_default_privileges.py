"""ALTER DEFAULT PRIVILEGES: what things begin with that are made later, against a plain model; what is shown and what is refused."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

import mzsql

LETTERS = {"INSERT": "a", "SELECT": "r", "UPDATE": "w", "DELETE": "d"}
IDS = {"mzsql": "u1", "joe": "u2", "ann": "u3", "public": ""}
TYPES = ("PUBLIC", None, None, "type", "PUBLIC", "USAGE")


@pytest.fixture
def con(tmp_path: Path) -> Iterator[mzsql.Connection]:
    with mzsql.connect(str(tmp_path / "env")) as made:
        made.execute("CREATE ROLE joe; CREATE ROLE ann; CREATE SCHEMA other")
        yield made


def rows(con: mzsql.Connection, text: str) -> list[tuple[object, ...]]:
    return con.execute(text).fetchall()


def acl(con: mzsql.Connection, relation: str, name: str) -> list[str]:
    ((found,),) = rows(con, f"SELECT privileges FROM {relation} WHERE name = '{name}'")
    assert isinstance(found, list)
    return found


def test_tables_begin_with_what_was_granted_ahead(con: mzsql.Connection) -> None:
    dice = random.Random(3)
    places = {
        "": ("public", "other"),
        "IN SCHEMA other": ("other",),
        "IN DATABASE materialize": ("public", "other"),
    }
    makers = {"FOR ALL ROLES": True, "FOR ROLE mzsql": True, "FOR USER joe": False}
    model: dict[tuple[str, str, str], set[str]] = {}
    for number in range(14):
        maker, place = dice.choice(sorted(makers)), dice.choice(sorted(places))
        words = dice.sample(sorted(LETTERS), dice.randint(1, 3))
        grantee = dice.choice(["joe", "ann", "public"])
        said = model.setdefault((maker, place, grantee), set())
        if dice.random() < 0.7:
            con.execute(
                f"ALTER DEFAULT PRIVILEGES {maker} {place} GRANT {', '.join(words)} ON TABLES TO {grantee}"
            )
            said |= set(words)
        else:
            con.execute(
                f"ALTER DEFAULT PRIVILEGES {maker} {place} REVOKE {', '.join(words)} ON TABLES FROM {grantee}"
            )
            said -= set(words)
        schema = dice.choice(["public", "other"])
        con.execute(f"CREATE TABLE {schema}.t{number} (a int)")
        expected = ["u1=arwd/u1"]
        for role in ("joe", "ann", "public"):
            has = {
                word
                for (maker, place, grantee), held in model.items()
                for word in held
                if grantee == role and makers[maker] and schema in places[place]
            }
            if has:
                letters = "".join(letter for word, letter in LETTERS.items() if word in has)
                expected.append(f"{IDS[role]}={letters}/u1")
        assert acl(con, "mz_tables", f"t{number}") == expected
    ((count,),) = rows(
        con, "SELECT count(*) FROM mz_default_privileges WHERE object_type = 'table'"
    )
    assert count == sum(bool(held) for held in model.values())


def test_each_kind_begins_with_its_own(con: mzsql.Connection, tmp_path: Path) -> None:
    assert rows(con, "SHOW DEFAULT PRIVILEGES") == [TYPES]
    con.execute(
        "ALTER DEFAULT PRIVILEGES FOR ALL ROLES GRANT ALL ON TABLES TO joe;"
        "ALTER DEFAULT PRIVILEGES FOR ROLE mzsql IN DATABASE materialize GRANT USAGE ON SCHEMAS TO joe, ann;"
        "ALTER DEFAULT PRIVILEGES FOR ROLE mzsql GRANT CREATE ON DATABASES TO ann;"
        "ALTER DEFAULT PRIVILEGES FOR ALL ROLES REVOKE USAGE ON TYPES FROM PUBLIC"
    )
    con.close()
    with mzsql.connect(str(tmp_path / "env")) as again:
        again.execute(
            "CREATE VIEW v AS SELECT 1 AS a; CREATE SCHEMA s; CREATE DATABASE d;"
            " CREATE TYPE l AS LIST (ELEMENT TYPE = int)"
        )
        assert acl(again, "mz_views", "v") == ["u1=r/u1", "u2=r/u1"]
        assert acl(again, "mz_schemas", "s") == ["u1=UC/u1", "u2=U/u1", "u3=U/u1"]
        assert acl(again, "mz_databases", "d") == ["u1=UC/u1", "u3=C/u1"]
        assert acl(again, "mz_types", "l") == ["u1=U/u1"]
        found = rows(again, "SHOW DEFAULT PRIVILEGES ON SCHEMAS FOR ann")
        assert found == [("mzsql", "materialize", None, "schema", "ann", "USAGE")]


def test_roles_are_kept_as_long_as_something_is_granted_ahead(con: mzsql.Connection) -> None:
    con.execute("ALTER DEFAULT PRIVILEGES FOR ROLE joe GRANT SELECT ON TABLES TO ann")
    for role in ("joe", "ann"):
        with pytest.raises(mzsql.Error, match="some objects depend on it"):
            con.execute(f"DROP ROLE {role}")
    con.execute("DROP OWNED BY joe; DROP ROLE joe; DROP ROLE ann")
    assert rows(con, "SHOW DEFAULT PRIVILEGES") == [TYPES]


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("GRANT SELECT ON TABLES TO joe", "Expected FOR, found GRANT"),
        ("FOR ALL ROLES GRANT USAGE ON TABLES TO joe", "invalid privilege types USAGE for TABLE"),
        ("FOR ALL ROLES GRANT SELECT ON VIEWS TO joe", "found VIEWS"),
        ("FOR ALL ROLES IN SCHEMA public GRANT USAGE ON SCHEMAS TO joe", "cannot use IN SCHEMA"),
        ("FOR ALL ROLES IN SCHEMA nowhere GRANT SELECT ON TABLES TO joe", "unknown schema"),
        ("FOR ROLE nobody GRANT SELECT ON TABLES TO joe", "unknown role 'nobody'"),
        ("FOR ROLE joe GRANT SELECT ON TABLES TO nobody", "unknown role 'nobody'"),
    ],
)
def test_what_cannot_be_granted_ahead_is_refused(
    con: mzsql.Connection, said: str, message: str
) -> None:
    with pytest.raises(mzsql.Error, match=message):
        con.execute(f"ALTER DEFAULT PRIVILEGES {said}")
    assert rows(con, "SHOW DEFAULT PRIVILEGES") == [TYPES]
