"""SQL text to MIR: parse, resolve names and types, decorrelate.

The way: `parse_statements(text)` gives `Statement`s, sqlglot's ASTs of our dialect under structs of our own; `plan_statement(statement,
catalog)` resolves names and types against a `CatalogView` into a `Plan` (`mzsql.frontend.plans`), its queries as HIR; `lower_query(query)`
decorrelates HIR into a MIR relation with a `RelationDesc` and a `RowSetFinishing`. `bind_parameters(text, params)` puts parameters into
text as typed literals before parsing. Nothing but `SqlError`s leaves here, whatever the text.

    parse_statements(text: str) -> list[Statement]
    bind_parameters(text: str, params: Sequence[object] | Mapping[str, object] | None) -> str
    plan_statement(statement: Statement, catalog: CatalogView) -> Plan
    lower_query(query: hir.Query) -> LoweredQuery(relation, desc, finishing)
    lower_relation(relation: hir.Relation) -> Relation
"""
