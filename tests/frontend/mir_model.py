"""MIR's meaning, spelled as SQL for DuckDB: each node a CTE of rows with multiplicities.

Independent of planning: it knows the operators of MIR only, one formula each, no optimization and no decorrelation.
"""

from __future__ import annotations

import duckdb

from mzsql.expr import functions, numeric_folding, spell
from mzsql.expr import relation as mir
from mzsql.expr import scalar as ms
from mzsql.expr.engines import to_sql
from mzsql.expr.evaluate import EvalError, Evaluator
from mzsql.expr.functions.table import Engine, Sql
from mzsql.expr.typing import node_type
from mzsql.repr.types import ColumnType, RelationType, SqlType

DUCK = Engine.DUCKDB


def _asked(expr: ms.Scalar) -> ms.Literal | ms.LiteralError:
    evaluator = Evaluator()
    try:
        (found,) = evaluator.evaluate([expr])
    finally:
        evaluator.close()
    typ = ms.scalar_type(expr, ())
    return (
        ms.LiteralError(found.message, typ)
        if isinstance(found, EvalError)
        else ms.Literal(found, typ)
    )


class Model:
    """Translates one relation; `tables` maps global ids to DuckDB tables with columns c0, c1, …"""

    def __init__(self, tables: dict[str, str], *, errors: bool = True) -> None:
        self.tables = tables
        self.errors = (
            errors  # without them DuckDB can take a conjunction apart and push its parts into joins
        )
        self.ctes: list[str] = []
        self.locals: dict[int, tuple[str, RelationType]] = {}

    def answer(
        self, con: duckdb.DuckDBPyConnection, rel: mir.Relation, finishing: mir.RowSetFinishing
    ) -> list[tuple]:
        name, typ = self.node(rel)
        name = self.consolidated(name, typ)
        order = [_order(o) for o in finishing.order_by]
        columns = ", ".join(f"c{c}" for c in finishing.project) or "1"
        expanded = self.cte(
            f"SELECT {_cols(typ)} FROM {name}, range(d)"
            if typ.columns
            else f"SELECT d FROM {name}, range(d)"
        )
        sql = f"SELECT {columns} FROM {expanded}"
        if order:
            sql += f" ORDER BY {', '.join(order)}"
        if finishing.limit is not None:
            sql += f" LIMIT {finishing.limit}"
        if finishing.offset:
            sql += f" OFFSET {finishing.offset}"
        negative = f"SELECT count(*) FROM {name} WHERE d < 0"
        with_ = "WITH " + ",\n".join(self.ctes)
        assert con.execute(f"{with_} {negative}").fetchall() == [(0,)], "negative multiplicity"
        rows = con.execute(f"{with_} {sql}").fetchall()
        return rows if finishing.project else [() for _ in rows]

    def cte(self, sql: str) -> str:
        name = f"n{len(self.ctes)}"
        self.ctes.append(f"{name} AS NOT MATERIALIZED ({sql})")
        return name

    def scalar(self, expr: ms.Scalar, typ: RelationType, prefix: str = "") -> str:
        from sqlglot import expressions as exp

        if numeric_folding.concerns(expr) and not ms.support(expr):
            # Constants have more digits than an engine's.
            expr = numeric_folding.reduced(expr, _asked)
        columns = [
            Sql(exp.column(f"c{i}", table=prefix or None, quoted=False), c.type)
            for i, c in enumerate(typ.columns)
        ]
        value = to_sql(spell.value(expr, columns, DUCK), DUCK)
        failure = spell.error(expr, columns, DUCK)
        if failure is None or not self.errors:
            return value
        message = to_sql(failure, DUCK)
        return f"CASE WHEN ({message}) IS NOT NULL THEN error({message}) ELSE {value} END"

    def node(self, rel: mir.Relation) -> tuple[str, RelationType]:
        match rel:
            case mir.Let(id=local, value=value, body=body):
                name, typ = self.node(value)
                self.ctes.append(f"l{local} AS MATERIALIZED (SELECT * FROM {name})")
                self.locals[local] = (f"l{local}", typ)
                return self.node(body)
            case mir.Get(id=local) if isinstance(local, int):
                name, typ = self.locals[local]
                assert [c.type for c in typ.columns] == [c.type for c in rel.typ.columns]
                return name, typ
            case mir.Get(id=gid, typ=typ):
                return self.cte(f"SELECT *, 1::BIGINT AS d FROM {self.tables[gid]}"), typ
        inputs = [self.node(i) for i in mir.inputs(rel)]
        typ = node_type(rel, [t for _, t in inputs])
        return self.cte(self.formula(rel, inputs, typ)), typ

    def formula(self, rel, inputs, typ) -> str:
        name, inner = inputs[0] if inputs else ("", RelationType(()))
        match rel:
            case mir.Constant(rows=rows):
                return _constant(rows, typ)
            case mir.Project(outputs=outputs):
                columns = [f"c{o} AS c{i}" for i, o in enumerate(outputs)]
                return f"SELECT {', '.join([*columns, 'd'])} FROM {name}"
            case mir.Map(scalars=scalars):
                # An expression may read those before it: one level each.
                source, grown = name, list(inner.columns)
                for scalar in scalars:
                    value = self.scalar(scalar, RelationType(tuple(grown)))
                    source = f"(SELECT *, {value} AS c{len(grown)} FROM {source})"
                    grown.append(ColumnType(ms.scalar_type(scalar, grown)))
                return f"SELECT {_cols(typ, 'd')} FROM {source}"
            case mir.Filter(predicates=predicates):
                tests = " AND ".join(f"({self.scalar(p, inner)})" for p in predicates)
                return f"SELECT * FROM {name} WHERE {tests}"
            case mir.FlatMap(func=key, exprs=exprs):
                from sqlglot import expressions as exp

                cols = [Sql(exp.column(f"c{i}"), c.type) for i, c in enumerate(inner.columns)]
                args = [
                    Sql(spell.value(e, cols, DUCK), ms.scalar_type(e, inner.columns)) for e in exprs
                ]
                func = functions.table_func(key)
                rows = to_sql(func.rows(DUCK, args, [c.type for c in func.output.columns]), DUCK)
                return f"SELECT {_cols(inner, 'd')}, unnest({rows}) AS c{inner.arity} FROM {name}"
            case mir.Join(equivalences=classes):
                return self.join(inputs, classes)
            case mir.Reduce():
                return self.reduce(rel, name, inner)
            case mir.TopK():
                return self.topk(rel, name, inner)
            case mir.Negate():
                return f"SELECT {_cols(inner, '-d AS d')} FROM {name}"
            case mir.Threshold():
                return f"SELECT * FROM {self.consolidated(name, inner)} WHERE d > 0"
            case mir.Union():
                parts = [f"SELECT {_cols(t, 'd')} FROM {n}" for n, t in inputs]
                return " UNION ALL ".join(parts)
            case _:
                raise AssertionError(rel)

    def join(self, inputs, classes) -> str:
        where, columns, total = [], [], []
        for i, (_, t) in enumerate(inputs):
            columns.extend(f"x{i}.c{c}" for c in range(t.arity))
            total.append(f"x{i}.d")
        tests = []
        for members in classes:
            first, *rest = [columns[m.index] for m in members]
            tests.extend(f"{first} IS NOT DISTINCT FROM {other}" for other in rest)
        where = f" WHERE {' AND '.join(tests)}" if tests else ""
        chosen = [f"{c} AS c{i}" for i, c in enumerate(columns)]
        sources = ", ".join(f"{n} x{i}" for i, (n, _) in enumerate(inputs))
        return f"SELECT {', '.join([*chosen, ' * '.join(total) + ' AS d'])} FROM {sources}{where}"

    def consolidated(self, name, typ) -> str:
        if not typ.columns:
            return self.cte(f"SELECT sum(d)::BIGINT AS d FROM {name} HAVING sum(d) <> 0")
        cols = _cols(typ)
        return self.cte(
            f"SELECT {cols}, sum(d)::BIGINT AS d FROM {name} GROUP BY {cols} HAVING sum(d) <> 0"
        )

    def reduce(self, rel: mir.Reduce, name, inner) -> str:
        keys = [f"{self.scalar(k, inner)} AS c{i}" for i, k in enumerate(rel.group_key)]
        named = [f"{self.scalar(a.expr, inner)} AS v{i}" for i, a in enumerate(rel.aggregates)]
        picked = [*(f"c{i}" for i in range(len(keys))), *(f"v{i}" for i in range(len(named))), "1"]
        source = (
            f"(SELECT {', '.join([*picked, 'sum(d)::BIGINT AS d'])} FROM "
            f"(SELECT {', '.join([*keys, *named, 'd'])} FROM {name}) GROUP BY ALL HAVING sum(d) <> 0)"
        )
        # An aggregate of negative multiplicities has no meaning: `range` would hide it.
        rows = f"(SELECT * FROM {source}, range(CASE WHEN d < 0 THEN error('negative') ELSE d END))"
        group = ", ".join(f"c{i}" for i in range(len(keys)))
        done = [
            f"{_aggregate(a, f'v{i}', ms.scalar_type(a.expr, inner.columns))} AS c{len(keys) + i}"
            for i, a in enumerate(rel.aggregates)
        ]
        columns = [f"c{i}" for i in range(len(keys))]
        by = f"GROUP BY {group}" if group else "HAVING count(*) > 0"
        return f"SELECT {', '.join([*columns, *done, '1::BIGINT AS d'])} FROM {rows} {by}"

    def topk(self, rel: mir.TopK, name, inner) -> str:
        source = self.consolidated(name, inner)
        order = [_order(o) for o in rel.order_key] + [f"c{i}" for i in range(inner.arity)]
        by = f"PARTITION BY {', '.join(f'c{k}' for k in rel.group_key)} " if rel.group_key else ""
        over = f"({by}ORDER BY {', '.join(order)})"
        numbered = (
            f"(SELECT {_cols(inner)}, row_number() OVER {over} AS rn FROM {source}, range(d))"
        )
        test = f"rn > {rel.offset}"
        if rel.limit is not None:
            test += f" AND coalesce(rn <= {rel.offset} + ({self.scalar(rel.limit, inner)}), true)"
        return f"SELECT {_cols(inner, '1::BIGINT AS d')} FROM {numbered} WHERE {test}"


def _cols(typ: RelationType, *more: str) -> str:
    return ", ".join([*(f"c{i}" for i in range(typ.arity)), *more])


def _order(o: ms.ColumnOrder) -> str:
    return f"c{o.column} {'DESC' if o.desc else 'ASC'} NULLS {'LAST' if o.nulls_last else 'FIRST'}"


def _constant(rows, typ: RelationType) -> str:
    selects = []
    for row, diff in rows:
        values = [
            f"{to_sql(spell.literal(v, c.type, DUCK), DUCK)} AS c{i}"
            for i, (v, c) in enumerate(zip(row, typ.columns, strict=True))
        ]
        selects.append(f"SELECT {', '.join([*values, f'{diff}::BIGINT AS d'])}")
    if selects:
        return " UNION ALL ".join(selects)
    nulls = [
        f"{to_sql(spell.literal(None, c.type, DUCK), DUCK)} AS c{i}"
        for i, c in enumerate(typ.columns)
    ]
    return f"SELECT {', '.join([*nulls, '0::BIGINT AS d'])} WHERE false"


def _aggregate(a: ms.AggregateExpr, value: str, arg: SqlType) -> str:
    distinct = "DISTINCT " if a.distinct else ""
    base = a.func.partition("_")[0] if not a.func.startswith("bool_") else a.func
    typ = to_sql(spell.sql_type(a.typ, DUCK), DUCK)
    match base:
        case "count" | "sum" | "min" | "max" | "bool_or" | "bool_and":
            return f"{base}({distinct}{value})::{typ}"
        case "any":
            return f"CASE WHEN bool_or({value}) THEN true WHEN count(*) > count({value}) THEN NULL ELSE false END"
        case "all":
            return f"CASE WHEN NOT bool_and({value}) THEN false WHEN count(*) > count({value}) THEN NULL ELSE true END"
        case _:
            from sqlglot import exp

            func = functions.aggregate(a.func)
            rows = exp.column("v")
            ast = func.value(DUCK, [Sql(rows, arg)], a.typ)
            return to_sql(ast, DUCK).replace('"v"', value)
