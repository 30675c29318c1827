"""Parsing INSERT, UPDATE, DELETE and COPY."""

from __future__ import annotations

from sqlglot import expressions as exp
from sqlglot.tokenizer_core import TokenType

from mzsql.frontend.parse import statements as st
from mzsql.frontend.parse.pieces import QUERY_STARTS, Nesting, Parse, Pieces, Statements
from mzsql.repr.errors import SqlSyntaxError


def _values_of(node: exp.Expr, names: list[str], position: int) -> list[exp.Expr]:
    """The values assigned to several columns."""
    if isinstance(node, exp.Subquery):
        return [_column_of(node, names, i) for i in range(len(names))]
    row = isinstance(node, exp.Anonymous) and str(node.this).upper() == "ROW"
    if not row and not isinstance(node, exp.Tuple | exp.Paren):
        raise SqlSyntaxError(
            "source for a multiple-column UPDATE item must be a sub-SELECT or ROW() expression",
            position=position,
        )
    values = [node.this] if isinstance(node, exp.Paren) else list(node.expressions)
    if len(values) != len(names):
        raise SqlSyntaxError("number of columns does not match number of values", position=position)
    return [exp.Var(this="DEFAULT") if _is_default(value) else value for value in values]


def _is_default(node: exp.Expr) -> bool:
    """Whether an expression is the word DEFAULT, which parses as a column name."""
    plain = isinstance(node, exp.Column) and not node.args.get("table")
    return plain and not node.this.args.get("quoted") and node.name.upper() == "DEFAULT"


def _column_of(query: exp.Subquery, names: list[str], at: int) -> exp.Expr:
    """One column of a subquery by position; `meta["row"]` has the whole subquery and its expected number of columns."""
    columns = [exp.to_identifier(f"f{i + 1}", quoted=True) for i in range(len(names))]
    alias = exp.TableAlias(this=exp.to_identifier("row", quoted=True), columns=columns)
    source = exp.Subquery(this=query.this.copy(), alias=alias)
    picked = exp.Select(expressions=[exp.Column(this=columns[at].copy())])
    picked.set("from_", exp.From(this=source))
    node = exp.Subquery(this=picked)
    node.meta["row"] = (query.this, len(names))
    return node


def insert(pieces: Pieces) -> st.Insert:
    """INSERT INTO …, after INSERT.

    Raises:
        SqlSyntaxError: the text goes on differently.
    """
    pieces.expect("INTO")
    table = pieces.name()
    alias = pieces.identifier() if pieces.take_token(TokenType.ALIAS) else None
    columns = pieces.columns() if _at_columns(pieces) else ()
    query = None if pieces.take("DEFAULT", "VALUES") else pieces.query()
    return st.Insert(pieces.source, table, columns, query, alias, _returning(pieces))


def _returning(pieces: Pieces) -> tuple[exp.Expr, ...]:
    """An optional RETURNING list."""
    if not pieces.take("RETURNING"):
        return ()
    items, _ = pieces.parser._parse_projections()
    if not items:
        pieces.expected("an expression")
    return tuple(items)


def _at_columns(pieces: Pieces) -> bool:
    """Whether a column list follows, instead of a query in parentheses."""
    behind = pieces.parser._next
    return pieces.peek_token(TokenType.L_PAREN) and bool(
        behind and behind.token_type not in QUERY_STARTS
    )


def update(pieces: Pieces) -> st.Update:
    """UPDATE …, after UPDATE.

    Raises:
        SqlSyntaxError: the text goes on differently.
    """
    table = pieces.name()
    alias = _alias(pieces, "SET")
    pieces.expect("SET")
    assignments = [one for some in pieces.separated(_assignments) for one in some]
    sources = _tables(pieces) if pieces.take("FROM") else None
    where = pieces.expression() if pieces.take("WHERE") else None
    returning = _returning(pieces)
    return st.Update(pieces.source, table, alias, tuple(assignments), where, returning, sources)


def _tables(pieces: Pieces) -> exp.Select:
    """The relations of a FROM or USING clause, as a query over all of them."""
    first = pieces.parser._parse_table()
    if first is None:
        pieces.expected("identifier")
    joins = list(pieces.parser._parse_joins())
    return exp.Select(expressions=[exp.Star()], from_=exp.From(this=first), joins=joins)


def _alias(pieces: Pieces, *stop: str) -> str | None:
    """An optional alias of the table, with or without AS; without, none of the words that end it."""
    if pieces.take_token(TokenType.ALIAS):
        return pieces.identifier()
    if pieces.at_end() or pieces.word() in (*stop, "WHERE", "USING", "RETURNING"):
        return None
    return pieces.identifier("end of statement")


def _assignments(pieces: Pieces) -> list[tuple[str, int, exp.Expr]]:
    """``column = value``, or ``(column, …) = (value, …)``, where a subquery may replace the values."""
    at = pieces.position()
    targets = pieces.columns()
    if targets:
        pieces.expect_token(TokenType.EQ, "=")
        values = _values_of(pieces.expression(), [name for name, _ in targets], at)
        return [(*target, value) for target, value in zip(targets, values, strict=True)]
    target = pieces.placed_identifier()
    pieces.expect_token(TokenType.EQ, "=")
    value = exp.Var(this="DEFAULT") if pieces.take("DEFAULT") else pieces.expression()
    return [(*target, value)]


def delete(pieces: Pieces) -> st.Delete:
    """DELETE FROM …, after DELETE.

    Raises:
        SqlSyntaxError: the text goes on differently.
    """
    pieces.expect("FROM")
    table = pieces.name()
    alias = _alias(pieces)
    using = _tables(pieces) if pieces.take("USING") else None
    where = pieces.expression() if pieces.take("WHERE") else None
    return st.Delete(pieces.source, table, alias, using, where, _returning(pieces))


# --- COPY -----------------------------------------------------------------------------------------


def copy(pieces: Pieces, parse_statement: Parse) -> st.CopyFrom | st.CopyTo:
    """COPY t FROM {'<file>' | STDIN}, COPY {t | (query) | (SUBSCRIBE …)} TO {STDOUT | '<file>'} [WITH] (FORMAT …), after
    COPY.

    Raises:
        SqlSyntaxError: the text goes on differently.
    """
    if pieces.take_token(TokenType.L_PAREN):
        what = _copied(pieces, parse_statement)
        pieces.close()
        pieces.expect("TO")
        return _copy_to(pieces, what, ())
    table = pieces.name()
    columns = pieces.columns()
    if pieces.take("TO"):
        return _copy_to(pieces, table, columns)
    if not pieces.take("FROM"):
        pieces.expected("FROM or TO")
    path = None if pieces.take("STDIN") else pieces.string()
    return st.CopyFrom(pieces.source, table, columns, path, _copy_options(pieces))


def _copied(pieces: Pieces, parse_statement: Parse) -> st.Select | st.Subscribe:
    """The query or SUBSCRIBE in the parentheses of COPY (…) TO."""
    if not pieces.peek("SUBSCRIBE"):
        return pieces.select()
    subscribe = parse_statement(pieces)
    assert isinstance(subscribe, st.Subscribe)
    return subscribe


def _copy_to(
    pieces: Pieces,
    what: st.Name | st.Select | st.Subscribe,
    columns: tuple[tuple[str, int], ...],
) -> st.CopyTo:
    path = None if pieces.take("STDOUT") else pieces.string()
    return st.CopyTo(pieces.source, what, columns, path, _copy_options(pieces))


def _copy_options(pieces: Pieces) -> tuple[st.CopyOption, ...]:
    pieces.take("WITH")
    if pieces.peek_token(TokenType.L_PAREN):
        return pieces.in_parentheses(_copy_option)
    options: list[st.CopyOption] = []
    while (option := _bare_copy_option(pieces)) is not None:
        options.append(option)
    return tuple(options)


def _bare_copy_option(pieces: Pieces) -> st.CopyOption | None:
    """An option in COPY's old syntax without parentheses, such as ``CSV HEADER NULL AS ''``, which clients still use."""
    position = pieces.position()
    for word in ("csv", "binary"):
        if pieces.take(word.upper()):
            return "format", word, position
    if pieces.take("HEADER"):
        return "header", True, position
    option = pieces.take_one((("DELIMITER",), ("QUOTE",), ("ESCAPE",), ("NULL",)))
    if option is None:
        return None
    pieces.take("AS")
    return option, pieces.string(), position


def _copy_option(pieces: Pieces) -> st.CopyOption:
    position = pieces.position()
    option = pieces.expect_one(
        _COPY_OPTIONS, "one of DELIMITER, ESCAPE, FORMAT, HEADER, NULL or QUOTE"
    )
    if option == "header":
        return option, pieces.boolean(), position
    pieces.take_token(TokenType.EQ)
    if option == "format" and not pieces.peek_token(TokenType.STRING):
        return option, pieces.identifier(), position
    text = pieces.string()
    # As in Materialize, the format may be a string too.
    return option, text.lower() if option == "format" else text, position


_COPY_OPTIONS = (("FORMAT",), ("HEADER",), ("DELIMITER",), ("QUOTE",), ("ESCAPE",), ("NULL",))
#: The statements of this family, by the words that they begin with.
STATEMENTS: Statements = (
    (("INSERT",), insert),
    (("UPDATE",), update),
    (("DELETE",), delete),
)
#: Those that have another statement in them.
NESTING: Nesting = ((("COPY",), copy),)
#: What other systems' statements begin with, too (`mzsql.frontend.parse.heads`): INSERT OVERWRITE is Spark's.
OTHERS = (("INSERT",), ("DELETE",))
#: Those that others have too and that go by the relation whose name follows.
NAMED = (("INSERT", "INTO"), ("UPDATE",), ("DELETE", "FROM"))
