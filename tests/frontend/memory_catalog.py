"""A small catalog in memory: what planning needs, and nothing more."""

from __future__ import annotations

from mzsql.catalog.builtin import builtins_by_name
from mzsql.frontend import lower_query, parse_statements, plan_statement
from mzsql.frontend.catalog import SYSTEM_SCHEMAS, CatalogItem, FullName, PartialName
from mzsql.frontend.plan import ddl_plans, plans
from mzsql.repr.ids import GlobalId


class MemoryCatalog:
    """Names to objects in database materialize, schema public; `run` carries out DDL."""

    database = "materialize"
    search_path = ("public",)
    cluster = "quickstart"
    unsafe_functions = True
    temporary = ("materialize", "mz_temp_0")

    def __init__(self) -> None:
        self.items: dict[FullName, CatalogItem] = {}

    def resolve_item(self, name: PartialName) -> CatalogItem | None:
        if name.database not in (None, self.database):
            return None
        builtin = builtins_by_name().get((name.schema or "mz_catalog", name.item))
        if builtin is not None:
            desc = builtin.desc or lower_query(self.plan(builtin.query).query).desc
            called = FullName(None, builtin.schema, builtin.name)
            return CatalogItem(builtin.id, called, builtin.kind, desc, builtin.sql)
        schemas = (name.schema,) if name.schema else self.search_path
        for schema in schemas:
            found = self.items.get(FullName(self.database, schema, name.item))
            if found is not None:
                return found
        return None

    def item(self, gid: GlobalId) -> CatalogItem:
        return next(i for i in self.items.values() if i.id == gid)

    def indexes_on(self, gid: GlobalId) -> tuple[CatalogItem, ...]:
        return tuple(i for i in self.items.values() if i.on == gid)

    def has_schema(self, database: str | None, schema: str) -> bool:
        if database is None:
            return schema in SYSTEM_SCHEMAS
        return database == self.database and schema in ("public", "other")

    def schema_names(self, database: str) -> list[str]:
        return [*(("public", "other") if database == self.database else ()), *SYSTEM_SCHEMAS]

    def has_database(self, database: str) -> bool:
        return database == self.database

    def database_names(self) -> list[str]:
        return [self.database]

    def type_names(self) -> list[str]:
        return [name.item for name, item in self.items.items() if item.kind == "type"]

    def has_cluster(self, cluster: str) -> bool:
        return cluster in ("quickstart", "other")

    def item_like(self, name: PartialName) -> str | None:
        del name  # nothing is looked for here
        return None

    def cluster_names(self) -> list[str]:
        return ["quickstart", "other"]

    def plan(self, text: str, **options: bool) -> plans.Plan:
        (statement,) = parse_statements(text)
        return plan_statement(statement, self, **options)

    def run(self, text: str) -> None:
        """Carry out the DDL statements of a text."""
        for statement in parse_statements(text):
            self._install(plan_statement(statement, self))

    def _install(self, plan: plans.Plan) -> None:
        gid = GlobalId(f"u{len(self.items) + 1}")
        match plan:
            case ddl_plans.CreateTablePlan():
                item = CatalogItem(
                    gid, plan.name, "table", plan.desc, plan.create_sql, plan.defaults
                )
            case ddl_plans.CreateViewPlan():
                desc = lower_query(plan.query).desc
                item = CatalogItem(gid, plan.name, "view", desc, plan.create_sql)
            case ddl_plans.CreateMaterializedViewPlan():
                desc = lower_query(plan.query).desc
                item = CatalogItem(
                    gid, plan.name, "materialized-view", desc, plan.create_sql, cluster=plan.cluster
                )
            case ddl_plans.CreateIndexPlan():
                item = CatalogItem(
                    gid,
                    plan.name,
                    "index",
                    None,
                    plan.create_sql,
                    on=plan.on.id,
                    keys=plan.keys,
                    cluster=plan.cluster,
                )
            case _:
                raise AssertionError(plan)
        self.items[item.name] = item
