"""EXPLAIN as a statement: options, notices, formats, the cluster it runs on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import msgspec
import pytest

import mzsql

SETUP = (
    "CREATE TABLE pets (id integer NOT NULL, owner integer, weight integer)",
    "CREATE TABLE owners (id integer, town text)",
    "CREATE INDEX pets_owner ON pets (owner)",
    "CREATE INDEX owners_both ON owners (id, town)",
    "CREATE VIEW heavy AS SELECT owner, max(weight) AS most FROM pets GROUP BY owner",
)


@pytest.fixture(scope="module")
def con(tmp_path_factory: pytest.TempPathFactory) -> Iterator[mzsql.Connection]:
    home: Path = tmp_path_factory.mktemp("explain")
    con = mzsql.connect(str(home))
    for statement in SETUP:
        con.execute(statement)
    yield con
    con.close()


def explain(con: mzsql.Connection, statement: str) -> str:
    ((text,),) = con.execute(f"EXPLAIN {statement}").fetchall()
    return str(text)


def plan(block: str) -> str:
    return dedent(block).lstrip("\n")


def test_columns_are_called_as_in_what_they_are_read_from(con: mzsql.Connection) -> None:
    shown = explain(
        con,
        "OPTIMIZED PLAN WITH (humanized expressions, no fast path) FOR "
        "SELECT o.town, h.most + 1 FROM heavy h JOIN owners o ON h.owner = o.id WHERE h.most > 5",
    )
    assert "aggregates=[max(#2{weight})]" in shown or "aggregates=[max(#1{weight})]" in shown
    assert "Join on=(#0{owner} = #2{id})" in shown
    assert "{max_weight}" in shown
    assert "#0{id}) IS NOT NULL" in shown


def test_a_run_of_columns_carries_the_names_of_its_ends(con: mzsql.Connection) -> None:
    shown = explain(
        con,
        "DECORRELATED PLAN WITH (humanized expressions) FOR SELECT id, owner, weight, 1 FROM pets",
    )
    assert "Map (1)" in shown
    assert "Get materialize.public.pets" in shown
    project = explain(
        con,
        "DECORRELATED PLAN WITH (humanized expressions) FOR "
        "SELECT id, owner, weight FROM (SELECT *, id + 1 FROM pets) AS more",
    )
    assert "Project (#0{id}..=#2{weight})" in project


def test_a_fast_path_is_over_rows_as_the_index_has_them(con: mzsql.Connection) -> None:
    shown = explain(
        con, "PHYSICAL PLAN WITH (humanized expressions) FOR SELECT * FROM pets WHERE owner = 7"
    )
    assert shown == plan(
        """
        Explained Query (fast path):
          Project (#1{id}, #0{owner}, #2{weight})
            ReadIndex on=materialize.public.pets pets_owner=[lookup value=(7)]

        Used Indexes:
          - materialize.public.pets_owner (lookup)

        Target cluster: quickstart
        """
    )


def test_a_lookup_is_one_line(con: mzsql.Connection) -> None:
    shown = explain(
        con, "OPTIMIZED PLAN WITH (no fast path) FOR SELECT * FROM pets WHERE owner = 7"
    )
    assert shown == plan(
        """
        Explained Query:
          Project (#0..=#2)
            ReadIndex on=materialize.public.pets pets_owner=[lookup value=(7)]

        Used Indexes:
          - materialize.public.pets_owner (lookup)

        Target cluster: quickstart
        """
    )


@pytest.mark.parametrize(
    ("query", "usage"),
    [
        ("SELECT * FROM pets LIMIT 3", "fast path limit"),
        ("SELECT * FROM pets ORDER BY weight LIMIT 3", "*** full scan ***"),
    ],
)
def test_only_a_limit_without_an_order_reads_a_part(
    con: mzsql.Connection, query: str, usage: str
) -> None:
    assert f"pets_owner ({usage})" in explain(con, f"OPTIMIZED PLAN FOR {query}")


def test_an_index_that_is_too_wide_is_remarked_on(con: mzsql.Connection) -> None:
    shown = explain(con, "SELECT * FROM owners WHERE id IN (1, 2) AND town > 'a'")
    assert "Index materialize.public.owners_both on owners(id, town) is too wide" in shown
    assert "`id IN (1, 2)`" in shown
    assert shown.endswith("exactly matches your literal equalities: (id).\n")
    one = explain(con, "SELECT * FROM owners WHERE town = 'Ulm'")
    assert '`town = "Ulm"`' in one
    assert "█" in explain(
        con, "OPTIMIZED PLAN WITH (redacted) FOR SELECT * FROM owners WHERE id = 1"
    )


def test_notices_are_materialize_s(tmp_path: Path) -> None:
    with mzsql.connect(str(tmp_path / "env")) as con:
        con.execute("CREATE TABLE w (a int, b int, c int); CREATE INDEX all_three ON w (a, b, c)")
        two = explain(con, "SELECT * FROM w WHERE b = 2 AND a = 1")
        assert "is too wide to use for literal equalities `a = 1 AND b = 2`." in two
        many = explain(con, "SELECT * FROM w WHERE b IN (2, 3) AND a = 1")
        assert "literal equalities `(a, b) IN ((1, 2), (1, 3))`." in many
        some = ", ".join(map(str, range(11)))
        wide = explain(con, f"SELECT * FROM w WHERE a IN ({some}) AND b IN ({some})")
        assert f"literal equalities `a IN ({some}) AND b IN ({some})`." in wide
        empty = explain(con, "OPTIMIZED PLAN FOR CREATE INDEX one ON w ()")
        assert "Notice: Empty index key. The index will be completely skewed to one worker" in empty
        null = explain(
            con, "OPTIMIZED PLAN FOR CREATE MATERIALIZED VIEW n AS SELECT * FROM w WHERE a <> NULL"
        )
        assert "Notice: Comparison with NULL using `=`, `<>`, or `!=` always evaluates" in null


def test_an_index_that_fits_is_not(con: mzsql.Connection) -> None:
    assert "Notices" not in explain(con, "SELECT * FROM owners WHERE id = 1 AND town = 'Ulm'")
    silent = explain(con, "OPTIMIZED PLAN WITH (no notices) FOR SELECT * FROM owners WHERE id = 1")
    assert "Notices" not in silent


def test_the_same_index_twice_is_remarked_on(con: mzsql.Connection) -> None:
    shown = explain(con, "CREATE INDEX again ON pets (owner)")
    assert (
        "Notice: Index materialize.public.again is identical to materialize.public.pets_owner"
        in shown
    )
    assert "which is also defined on pets(owner)." in shown


def test_a_comparison_with_null_is_remarked_on(con: mzsql.Connection) -> None:
    kept = "CREATE MATERIALIZED VIEW kept AS SELECT * FROM pets WHERE owner"
    assert "IS NOT NULL`" in explain(con, f"{kept} = NULL")
    assert "Notices" not in explain(con, f"{kept} IS NULL")
    # The plan of a query, which is nothing, says it.
    assert "Notices" not in explain(con, "SELECT * FROM pets WHERE owner = NULL")


@pytest.mark.parametrize(
    ("query", "cluster"),
    [
        ("SELECT 1, 'a'", "mz_catalog_server"),
        ("SELECT 1 + 1", "quickstart"),
        ("SELECT count(*)", "quickstart"),
        ("SELECT * FROM (VALUES (1), (2)) AS v", "quickstart"),
        ("WITH one AS (SELECT 1 AS n) SELECT * FROM one", "mz_catalog_server"),
        ("SELECT name FROM mz_catalog.mz_tables", "mz_catalog_server"),
        ("SELECT id FROM pets", "quickstart"),
    ],
)
def test_cheap_queries_run_beside_the_catalog(
    con: mzsql.Connection, query: str, cluster: str
) -> None:
    assert f"Target cluster: {cluster}\n" in explain(con, f"RAW PLAN FOR {query}")


def test_nothing_is_routed_where_it_is_switched_off(con: mzsql.Connection) -> None:
    con.execute("SET auto_route_catalog_queries = off")
    try:
        assert "Target cluster: quickstart\n" in explain(con, "RAW PLAN FOR SELECT 1")
    finally:
        con.execute("RESET auto_route_catalog_queries")


def test_annotations_stand_in_one_brace(con: mzsql.Connection) -> None:
    shown = explain(
        con,
        "OPTIMIZED PLAN WITH (arity, keys, types, non negative, subtree size, cardinality, "
        "column names) FOR SELECT most FROM heavy",
    )
    assert (
        'Project (#1) // { subtree_size: 4, non_negative: true, arity: 1, types: "(integer?)", '
        'keys: "()", cardinality: "<UNKNOWN>", column_names: "(max_weight)" }'
    ) in shown or (
        'Project (#1) // { subtree_size: 3, non_negative: true, arity: 1, types: "(integer?)", '
        'keys: "()", cardinality: "<UNKNOWN>", column_names: "(max_weight)" }'
    ) in shown


def test_rows_are_estimated_where_a_session_wants_them_counted(con: mzsql.Connection) -> None:
    con.execute("CREATE TABLE boxes (size integer NOT NULL, colour text)")
    con.execute("INSERT INTO boxes SELECT n, 'red' FROM generate_series(1, 30) AS g(n)")
    what = "OPTIMIZED PLAN WITH (cardinality) FOR SELECT * FROM boxes WHERE size > 3"
    assert explain(con, what).count('cardinality: "<UNKNOWN>"') == 2
    con.execute("SET enable_session_cardinality_estimates = on")
    try:
        shown = explain(con, what)
        assert 'Filter (#0 > 3) // { cardinality: "9.9' in shown
        assert 'ReadStorage materialize.public.boxes // { cardinality: "30" }' in shown
        joined = explain(
            con,
            "OPTIMIZED PLAN WITH (join implementations, enable cardinality estimates) FOR "
            "SELECT * FROM boxes AS a JOIN boxes AS b ON a.size = b.size",
        )
        assert joined.count("[#0]K|30|") == 2
    finally:
        con.execute("RESET enable_session_cardinality_estimates")


def test_a_source_says_its_filters_over_its_own_columns(con: mzsql.Connection) -> None:
    con.execute("CREATE TABLE stock (a integer, b integer)")
    shown = explain(con, "SELECT a + b FROM stock WHERE a > 0 AND a + b > 7")
    assert "Source materialize.public.stock\n  filter=((#0 > 0) AND ((#0 + #1) > 7))\n" in shown


def test_timing_is_the_last_line(con: mzsql.Connection) -> None:
    last = explain(con, "OPTIMIZED PLAN WITH (timing) FOR SELECT * FROM heavy").splitlines()[-1]
    assert last.startswith("Optimization time: ")
    assert last.endswith("ms")


@pytest.mark.parametrize(
    ("call", "shown"),
    [
        ("row_number() OVER ()", "row_number() over (order by [])"),
        (
            "lag(weight, 2) IGNORE NULLS OVER (ORDER BY id)",
            "lag(row(#2, 2, null)) ignore nulls over (order by [#0 asc nulls_last])",
        ),
        (
            "sum(weight) OVER (PARTITION BY owner ORDER BY id DESC ROWS BETWEEN 2 PRECEDING AND "
            "UNBOUNDED FOLLOWING)",
            "sum(#2) over (partition by [#1] order by [#0 desc nulls_first] "
            "rows between 2 preceding and unbounded following)",
        ),
        (
            "first_value(id) OVER (ORDER BY id RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)",
            "first_value(#0) over (order by [#0 asc nulls_last])",
        ),
    ],
)
def test_a_window_function_says_its_window(con: mzsql.Connection, call: str, shown: str) -> None:
    assert f"Map ({shown})\n" in explain(con, f"RAW PLAN FOR SELECT {call} FROM pets")


def test_what_is_projected_of_a_using_join_is_projected_once(con: mzsql.Connection) -> None:
    query = "SELECT town, id FROM pets JOIN owners USING (id)"
    assert explain(con, f"RAW PLAN FOR {query}").startswith("Project (#4, #0)\n  InnerJoin ")


def test_a_document_is_shown_by_its_parts(con: mzsql.Connection) -> None:
    query = """SELECT '{"b": [1, "x", null, true], "a": 2}'::jsonb"""
    shown = '({"a": 2, "b": [1, "x", json_null, true]})'
    assert f"- {shown}\n" in explain(con, f"OPTIMIZED PLAN FOR {query}")


def test_a_text_is_the_one_in_full(con: mzsql.Connection) -> None:
    query = "FOR SELECT town FROM owners WHERE id > 3"
    plan = explain(con, f"PHYSICAL PLAN AS TEXT {query}")
    assert explain(con, f"PHYSICAL PLAN AS VERBOSE TEXT {query}") == plan
    with pytest.raises(mzsql.ProgrammingError, match="TEXT"):
        explain(con, f"PHYSICAL PLAN AS VERBOSE JSON {query}")
    with pytest.raises(mzsql.ProgrammingError):
        explain(con, f"TIMESTAMP AS VERBOSE TEXT {query}")


@pytest.mark.parametrize("option", ["linear chains", "raw plans"])
def test_what_is_not_there_says_so(con: mzsql.Connection, option: str) -> None:
    with pytest.raises(mzsql.NotSupportedError, match="not supported"):
        explain(con, f"OPTIMIZED PLAN WITH ({option}) FOR SELECT 1")


def test_a_limit_stands_over_all_recursive_bindings(con: mzsql.Connection) -> None:
    query = (
        "WITH MUTUALLY RECURSIVE (RETURN AT RECURSION LIMIT 3) n (i integer) AS "
        "(SELECT 1 UNION SELECT i + 1 FROM n) SELECT * FROM n"
    )
    raw = explain(con, f"RAW PLAN FOR {query}")
    assert "With Mutually Recursive [recursion_limit=3, return_at_limit]\n  cte l0 =\n" in raw
    physical = explain(con, f"PHYSICAL PLAN FOR {query}")
    assert "cte [recursion_limit=3, return_at_limit] l0 =\n" in physical


@pytest.mark.parametrize(
    "stage", ["RAW", "DECORRELATED", "LOCALLY OPTIMIZED", "OPTIMIZED", "PHYSICAL"]
)
def test_every_stage_is_json_and_a_graph(con: mzsql.Connection, stage: str) -> None:
    query = (
        "SELECT town, sum(weight) FROM pets JOIN owners ON owner = owners.id "
        "WHERE town LIKE 'U%' GROUP BY town ORDER BY town LIMIT 5"
    )
    decoded = msgspec.json.decode(explain(con, f"{stage} PLAN AS JSON FOR {query}"))
    assert ("plans" in decoded) == (stage in ("OPTIMIZED", "PHYSICAL"))
    graph = explain(con, f"{stage} PLAN AS DOT FOR {query}")
    assert graph.startswith("digraph plan {\n")
    assert graph.endswith("}\n")
    boxes = graph.count("[label = ")
    assert boxes >= 4
    # A tree for each plan: every box but its root is read by another one.
    assert graph.count(" -> ") == boxes - 1
    assert "pets" in graph


def test_the_physical_plan_is_also_sql(con: mzsql.Connection) -> None:
    assert "lir_" in explain(con, "PHYSICAL PLAN AS SQL FOR SELECT most + 1 FROM heavy")
    with pytest.raises(mzsql.NotSupportedError, match="OPTIMIZED PLAN AS SQL"):
        explain(con, "OPTIMIZED PLAN AS SQL FOR SELECT 1")


def test_what_a_finishing_orders_by_is_called_by_name(con: mzsql.Connection) -> None:
    query = "SELECT owner, sum(weight) FROM pets GROUP BY owner ORDER BY 2 DESC, owner LIMIT 7"
    shown = explain(con, f"OPTIMIZED PLAN WITH (humanized expressions) FOR {query}")
    order = "order_by=[#1{sum_weight} desc nulls_first, #0{owner} asc nulls_last]"
    assert f"Finish {order} limit=7 output=[#0, #1]" in shown


def test_what_comes_out_of_a_recursion_has_names_and_what_goes_round_in_it_has_none(
    con: mzsql.Connection,
) -> None:
    shown = explain(
        con,
        "OPTIMIZED PLAN WITH (humanized expressions) FOR WITH MUTUALLY RECURSIVE r (p int, q int) AS ("
        "SELECT id, weight FROM pets UNION SELECT r.p, o.weight FROM r JOIN pets o ON r.q = o.id) "
        "SELECT p, count(q) FROM r GROUP BY p ORDER BY p",
    )
    assert "Reduce group_by=[#0{id}] aggregates=[count(#1{weight})]" in shown
    assert "Finish order_by=[#0{id} asc nulls_last]" in shown
    assert "Join on=(#1 = #2{id})" in shown


def test_limits_are_no_data(con: mzsql.Connection) -> None:
    query = "SELECT id, (SELECT town FROM owners WHERE id = pets.id ORDER BY town LIMIT 3) FROM pets LIMIT 5"
    shown = explain(con, f"PHYSICAL PLAN WITH (redacted) FOR {query}")
    assert "Finish limit=5" in shown
    assert "limit=3" in shown


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("SELECT 1 / 0", {"Constant": [{"Err": "DivisionByZero"}]}),
        ("SELECT 1 WHERE false", {"Constant": [{"Ok": []}]}),
        ("SELECT weight FROM pets WHERE owner = 1", {"PeekExisting": [{"User": 1}, {"User": 3}]}),
        ("SELECT owner FROM pets", {"PeekExisting": [{"User": 1}, {"User": 3}, None]}),
    ],
)
@pytest.mark.parametrize("stage", ["OPTIMIZED", "PHYSICAL"])
def test_a_plan_without_a_dataflow_is_one_in_json_too(
    con: mzsql.Connection, stage: str, query: str, wanted: dict[str, list[object]]
) -> None:
    shown = msgspec.json.decode(explain(con, f"{stage} PLAN AS JSON FOR {query}"))
    ((kind, fields),) = wanted.items()
    (only,) = shown["plans"]
    assert only["id"] == "Explained Query (fast path)"
    assert only["plan"][kind][: len(fields)] == fields
    assert shown["sources"] == []
    whole = msgspec.json.decode(
        explain(con, f"{stage} PLAN WITH (no fast path) AS JSON FOR {query}")
    )
    assert whole["plans"][0]["id"] == "Explained Query"


def test_remarks_on_what_is_deployed_are_kept_with_its_plan_and_end_with_their_index(
    tmp_path: Path,
) -> None:
    env = str(tmp_path / "env")
    asked = (
        "SELECT o.name, n.notice_type, n.message, n.hint, n.redacted_message, n.action "
        "FROM mz_internal.mz_notices n JOIN mz_catalog.mz_objects o ON o.id = n.object_id ORDER BY 1, 2"
    )
    with mzsql.connect(env) as con:
        con.execute("ALTER SYSTEM SET step_engine = 'duckdb'")
        con.execute("CREATE TABLE t (a int, b int)")
        con.execute("CREATE INDEX wide ON t (a, b)")
        con.execute("CREATE MATERIALIZED VIEW one AS SELECT b FROM t WHERE a = 7711")
        con.execute("CREATE MATERIALIZED VIEW two AS SELECT b FROM t WHERE a = NULL")
        con.execute(
            "CREATE TABLE u (a int); CREATE INDEX once ON u (a); CREATE INDEX again ON u (a)"
        )
        found = con.execute(asked).fetchall()
        assert [row[:2] for row in found] == [
            ("again", "An identical index already exists"),
            ("one", "Index too wide for literal constraints"),
            ("two", "Equality with null"),
        ]
        (_, _, message, hint, redacted, action) = found[1]
        assert "materialize.public.wide" in message
        assert "7711" in message
        assert "create an index" in hint
        assert "7711" not in redacted
        assert action is None
    with mzsql.connect(env) as con:
        assert con.execute(asked).fetchall() == found
        assert con.plans_from_cache[0] > 0, "they come with the plans"
        con.execute("DROP INDEX wide")
        assert [row[0] for row in con.execute(asked).fetchall()] == ["again", "two"]


@pytest.mark.parametrize(
    "form", ["QUERY GRAPH", "PLAN INSIGHTS AS JSON", "OPTIMIZER TRACE", "KEY SCHEMA"]
)
def test_what_else_is_explained_elsewhere_is_refused_by_its_name(
    con: mzsql.Connection, form: str
) -> None:
    name = " ".join(form.split()[:2]) if form != "QUERY GRAPH" else "QUERY"
    with pytest.raises(mzsql.NotSupportedError, match=f"^EXPLAIN {name} is not supported"):
        explain(con, f"{form} FOR SELECT 1")
