"""Ids and OIDs of builtin relations last: over builds that have other builtin relations, in what is stored, and from builds that numbered
them anew each time.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mzsql
from mzsql.adapter.environment import cache_shard
from mzsql.adapter.environment.environment import CATALOG_SHARD
from mzsql.adapter.environment.locations import locate
from mzsql.adapter.environment.opening import open_persist
from mzsql.catalog import builtin, described, former_ids
from mzsql.catalog.builtin import builtins
from mzsql.catalog.builtin_ids import FIRST, numbered, numbers, written
from mzsql.catalog.durable_map import DurableMap
from mzsql.frontend.definitions.references import system_relations
from mzsql.location import PluginColumn, PluginRelation, default_registry, hookimpl
from mzsql.persist import SystemClock
from mzsql.repr.errors import InternalError
from mzsql.repr.ids import oid

#: The command to be run where a builtin relation has no number yet.
COMMAND = "python -m mzsql.adapter.planning.builtin_columns"
#: The first lines of the file as they were written once, by how many they are and their checksum.
WRITTEN = 254, "0bf366c797ed7254"

DEPENDS = """SELECT o.name, r.schema_name || '.' || r.name
    FROM mz_internal.mz_object_dependencies AS d JOIN mz_objects AS o ON o.id = d.object_id
    LEFT JOIN mz_internal.mz_object_fully_qualified_names AS r ON r.id = d.referenced_object_id ORDER BY 1, 2"""
IN_PG_DEPEND = """SELECT o.relname, r.relname FROM pg_depend AS d JOIN pg_class AS o ON o.oid = d.objid
    LEFT JOIN pg_class AS r ON r.oid = d.refobjid WHERE o.relname IN ('classes', 'tables', 'both') ORDER BY 1, 2"""
DEPENDENCIES = [
    ("both", "public.classes"),
    ("both", "public.tables"),
    ("classes", "pg_catalog.pg_class"),
    ("classes", "pg_catalog.pg_namespace"),
    ("classes", "public.t"),
    ("tables", "mz_catalog.mz_tables"),
]


def ours() -> dict[str, int]:
    """The numbers of the system catalog's own relations, by full name."""
    return {one.full_name: int(one.id[1:]) for one in builtins().values() if one.plugin is None}


# --- the table -----------------------------------------------------------------------------------


def test_each_builtin_relation_has_a_number_in_the_file() -> None:
    assert ours().keys() <= numbers().keys(), f"relations without a number: run `{COMMAND}`"
    assert ours().items() <= numbers().items()


def test_the_file_is_as_it_is_written_and_in_order() -> None:
    text = Path(str(builtin.resources.files(builtin.PACKAGE).joinpath("ids.json"))).read_text(
        "utf-8"
    )
    assert text == written(numbers()), "two changes met, perhaps"
    found = list(numbers().values())
    assert found[0] == FIRST
    assert all(a < b for a, b in pairwise(found))
    assert oid(f"s{found[-1]}") < 20_000, "OIDs of users' objects begin there"


def test_numbers_given_once_stay() -> None:
    count, digest = WRITTEN
    first = dict(list(numbers().items())[:count])
    assert hashlib.sha256(written(first).encode()).hexdigest()[:16] == digest, (
        "a number means its relation for good: add lines at the end only"
    )


def test_system_schemas_keep_their_ids(tmp_path: Path) -> None:
    with mzsql.connect(tmp_path / "env") as con:
        found = con.execute(
            "SELECT id, name FROM mz_schemas WHERE id LIKE 's%' ORDER BY id"
        ).fetchall()
    names = [
        "mz_catalog",
        "pg_catalog",
        "mz_internal",
        "mz_introspection",
        "mz_unsafe",
        "information_schema",
    ]
    assert found[: len(names)] == [(f"s{n}", name) for n, name in enumerate(names, start=1)]


NAMES = st.sets(st.sampled_from([f"{schema}.{name}" for schema in "pq" for name in "abcdef"]))


@given(st.lists(NAMES, max_size=6))
def test_over_releases_no_number_changes_nor_is_given_twice(releases: list[set[str]]) -> None:
    known: dict[str, int] = {}
    for names in releases:
        after = numbered(known, names)
        assert known.items() <= after.items()
        assert names <= after.keys()
        assert len(set(after.values())) == len(after)
        assert all(
            after[new] > max(known.values(), default=0) for new in after.keys() - known.keys()
        )
        known = after


def test_one_relation_read_alone_is_the_one_that_is_read_with_all() -> None:
    own = {gid: one for gid, one in builtins().items() if one.plugin is None}
    assert {gid: builtin.own_builtin(one.schema, one.name) for gid, one in own.items()} == own
    with pytest.raises(InternalError, match=r"no relation mz_internal\.nothing"):
        builtin.own_builtin("mz_internal", "nothing")


# --- a build with one relation more -----------------------------------------------------------------


@pytest.fixture
def with_one_more(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Makes of this process the next build, which has one relation more, before all others by its name."""

    def forget() -> None:
        for known in (
            builtin._own,
            builtin._read,
            builtin._with_plugins,
            builtin._names,
            described._current,
        ):
            known.cache_clear()
        builtin.own_builtin.cache_clear()
        cache_shard._checksum.cache_clear()

    files = builtin._files

    def upgrade() -> None:
        one = "aaa", "-- One more.\nCREATE VIEW information_schema.aaa AS SELECT 7 AS seven"
        monkeypatch.setattr(builtin, "_files", lambda folder: iter([one, *files(folder)]))
        forget()

    yield upgrade
    monkeypatch.undo()
    forget()


def test_one_more_relation_changes_no_id(with_one_more: Callable[[], None]) -> None:
    before = ours()
    with_one_more()
    after = ours()
    new = after.pop("information_schema.aaa")
    assert after == before
    assert new not in before.values()


def define(con: mzsql.Connection) -> None:
    con.execute("CREATE TABLE t (a int); INSERT INTO t VALUES (1)")
    con.execute(
        "CREATE VIEW classes AS SELECT c.relname, t.a FROM pg_class AS c JOIN pg_namespace AS n"
        " ON n.oid = c.relnamespace CROSS JOIN t WHERE n.nspname = 'public'"
    )
    con.execute(
        "CREATE VIEW tables AS SELECT name, 'mz_tables' AS mz_schemas FROM mz_tables WHERE id LIKE 'u%'"
    )
    con.execute(
        "CREATE VIEW both AS SELECT c.relname FROM classes AS c JOIN tables AS r ON r.name = c.relname"
    )
    con.execute("COMMENT ON VIEW classes IS 'relations'; COMMENT ON COLUMN tables.name IS 'which'")


def check(con: mzsql.Connection) -> None:
    assert con.execute(DEPENDS).fetchall() == DEPENDENCIES
    named = [(o, r.split(".")[1]) for o, r in DEPENDENCIES]
    assert con.execute(IN_PG_DEPEND).fetchall() == named
    assert con.execute("SELECT relname FROM both").fetchall() == [("t",)]
    assert con.execute("SELECT obj_description('classes'::regclass, 'pg_class')").fetchall() == [
        ("relations",)
    ]


def test_what_is_stored_means_the_same_in_a_build_with_one_more(
    tmp_path: Path, with_one_more: Callable[[], None]
) -> None:
    with mzsql.connect(tmp_path / "env") as con:
        define(con)
        con.execute("CREATE SCHEMA side; CREATE TABLE side.known (c regclass, relname text)")
        con.execute(
            "INSERT INTO side.known SELECT oid::regclass, relname FROM pg_class WHERE oid < 20000"
        )
        check(con)
    with_one_more()
    with mzsql.connect(tmp_path / "env") as con:
        assert con.execute("SELECT * FROM information_schema.aaa").fetchall() == [(7,)]
        check(con)
        other = con.execute(
            "SELECT count(*) FILTER (WHERE p.relname = k.relname), count(*) FROM side.known AS k LEFT JOIN pg_class AS p ON p.oid = k.c"
        ).fetchall()
        assert other[0][0] == other[0][1] > 200


# --- environments of builds that numbered by name -------------------------------------------------


@contextlib.contextmanager
def catalog_of(env: Path) -> Iterator[DurableMap]:
    with contextlib.ExitStack() as undo:
        persist = open_persist(locate(str(env)), undo, None, SystemClock())
        catalog = DurableMap(persist, CATALOG_SHARD, "catalog")
        undo.callback(catalog.close)
        yield catalog


def stored(env: Path) -> dict[str, list[str]]:
    """What each object depends on as it is stored, by name."""
    with catalog_of(env) as catalog:
        items = [json.loads(v) for k, v in catalog.entries().items() if k.startswith("item/")]
    return {one["name"]: one.get("depends_on", []) for one in items}


def as_numbered_by_name(env: Path) -> None:
    """Make the catalog one of a build that gave the numbers 1, 2, … to builtin relations in order of names."""
    with catalog_of(env) as catalog:
        changed: dict[str, bytes | None] = {}
        for key, value in catalog.entries().items():
            entry = json.loads(value) if key.startswith("item/") else {}
            if any(gid[0] == "s" for gid in entry.get("depends_on", ())):
                former = {"classes": ["s189", "s206", "u1"], "tables": ["s53"]}[entry["name"]]
                changed[key] = json.dumps({**entry, "depends_on": former}).encode()
        assert len(changed) == 2
        catalog.apply(lambda _: changed)


def test_an_environment_of_a_build_that_numbered_by_name_opens_with_what_its_texts_name(
    tmp_path: Path,
) -> None:
    env = tmp_path / "env"
    with mzsql.connect(env) as con:
        define(con)
    as_numbered_by_name(env)
    assert stored(env)["tables"] == ["s53"]
    for _ in range(2):
        with mzsql.connect(env, read_only=True) as con:
            assert con.execute(DEPENDS).fetchall() == DEPENDENCIES
        with mzsql.connect(env) as con:
            check(con)
    with mzsql.connect(env) as con:
        con.execute("ALTER VIEW tables RENAME TO mine")
        con.execute("ALTER TABLE t RENAME TO numbers")
        assert con.execute("SELECT relname FROM both").fetchall() == [("numbers",)]
    assert stored(env)["mine"] == [f"s{ours()['mz_catalog.mz_tables']}"]
    with mzsql.connect(env) as con:
        with pytest.raises(mzsql.Error, match="depend"):
            con.execute("DROP VIEW classes")
        con.execute("DROP VIEW classes CASCADE")
        assert con.execute(DEPENDS).fetchall() == [("mine", "mz_catalog.mz_tables")]


def test_texts_are_looked_at_until_somebody_in_charge_changes_the_catalog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env, looked = tmp_path / "env", list[str]()

    def noted(text: str) -> set[tuple[str, str]]:
        looked.append(text)
        return system_relations(text)

    monkeypatch.setattr(former_ids, "system_relations", noted)
    with mzsql.connect(env) as con:
        define(con)
    as_numbered_by_name(env)
    assert not looked
    with mzsql.connect(env, read_only=True) as con:
        assert con.execute(DEPENDS).fetchall() == DEPENDENCIES
    # Who only reads has changed nothing.
    assert (len(looked), stored(env)["tables"]) == (2, ["s53"])
    with mzsql.connect(env) as con:
        con.execute("COMMENT ON TABLE t IS 'anything'")
    present = ours()
    assert stored(env)["tables"] == [f"s{present['mz_catalog.mz_tables']}"]
    looked.clear()
    with mzsql.connect(env) as con:
        check(con)
        con.execute("DROP VIEW both")
    assert not looked


def test_a_text_that_no_longer_parses_keeps_no_catalog_from_opening(tmp_path: Path) -> None:
    env = tmp_path / "env"
    with mzsql.connect(env) as con:
        con.execute("CREATE TABLE t (a int); CREATE VIEW tables AS SELECT name FROM mz_tables")
    with catalog_of(env) as catalog:
        key, value = next(
            (k, json.loads(v)) for k, v in catalog.entries().items() if b"mz_tables" in v
        )
        broken = {**value, "create_sql": "CREATE VIEW (", "depends_on": ["s53"]}
        catalog.apply(lambda _: {key: json.dumps(broken).encode()})
    with mzsql.connect(env) as con:
        assert con.execute("SELECT * FROM t").fetchall() == []
        assert con.execute(DEPENDS).fetchall() == []
        con.execute("DROP VIEW tables")


# --- relations of plugins ---------------------------------------------------------------------------


class Plugin:
    def __init__(self, relation: PluginRelation) -> None:
        self.relation = relation

    @hookimpl
    def mzsql_builtin_relations(self) -> list[PluginRelation]:
        return [self.relation]


@pytest.fixture
def install() -> Iterator[Callable[..., None]]:
    """Installs the one plugin anew, whose relation has these columns; none: it has none."""

    def registered(*columns: str) -> None:
        default_registry.cache_clear()
        if columns:
            made = tuple(PluginColumn(name, "bigint") for name in columns)
            shop = PluginRelation(
                "shop", made, "A shop.", lambda _: [(1,) * len(columns)], schema="mz_catalog"
            )
            told = default_registry().register("p", Plugin(shop))
            assert told.state == "loaded", told.failure

    yield registered
    default_registry.cache_clear()


def test_a_view_over_a_plugins_relation_goes_on_when_that_has_other_columns(
    tmp_path: Path, install: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A release is known by its version alone, whatever plugins there are.
    monkeypatch.setattr(cache_shard, "_checksum", lambda _: "released")
    env, what = tmp_path / "env", DEPENDS.replace("ORDER BY", "WHERE o.name = 'v' ORDER BY")
    install("a", "b")
    with mzsql.connect(env) as con:
        con.execute("CREATE VIEW v AS SELECT a FROM mz_catalog.shop")
        assert con.execute("SELECT * FROM v").fetchall() == [(1,)]
    before = stored(env)["v"]
    install("z", "a", "b")
    with mzsql.connect(env) as con:
        assert con.execute("SELECT * FROM v").fetchall() == [(1,)]
        assert con.execute(what).fetchall() == [("v", "mz_catalog.shop")]
    install()
    with mzsql.connect(env) as con:
        con.execute("GRANT SELECT ON v TO PUBLIC")
    assert stored(env)["v"] == before, "where the plugin is not installed nothing better is known"
