"""Rewriting definitions after something that they name was renamed.

Promise: a stored definition has every object by its full name, so it can be rewritten by tokens: references get the new
name, and nothing else changes. Columns qualified by the object's old name stay valid: the reference gets the old name
as an alias or, where the qualifier has a schema, the qualifier is rewritten. So the definition keeps its meaning; the
caller checks that by planning it.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import expressions as exp
from sqlglot.tokenizer_core import Token, TokenType

from mzsql.frontend.catalog import FullName
from mzsql.frontend.definitions.normalize import quoted, quoted_name
from mzsql.frontend.grammar.tokens import tokenize
from mzsql.frontend.parse import statements as st
from mzsql.frontend.parse.parse import parse_statements
from mzsql.frontend.parse.pieces import fold

Edit = tuple[int, int, str]
"""Start and end (exclusive) of a piece of text, and its replacement."""


def rewritten(create_sql: str, own: FullName, renamed: Mapping[FullName, FullName]) -> str:
    """An object's definition after renames.

    Args:
        create_sql: the definition.
        own: the object's own old name.
        renamed: old to new names; its own may be among them.
    """
    edits: list[Edit] = []
    (statement,) = parse_statements(create_sql)
    if own in renamed:
        edits.append(_head(create_sql, statement, renamed[own]))
    if isinstance(statement, st.CreateView):
        edits += _references(create_sql, statement.query.query, renamed)
    elif isinstance(statement, st.CreateIndex):
        edits += _of_index(create_sql, statement, renamed)
    edits += _types(create_sql, renamed, edits)
    return _edited(create_sql, edits)


def _types(text: str, renamed: Mapping[FullName, FullName], known: list[Edit]) -> list[Edit]:
    """Edits for type names: three quoted parts that no other edit covers."""
    tokens = tokenize(text)
    edits: list[Edit] = []
    at = 0
    while at < len(tokens):
        last = _run(tokens, at) if tokens[at].token_type == TokenType.IDENTIFIER else at
        parts = [token.text.replace('""', '"') for token in tokens[at : last + 1 : 2]]
        start, end = tokens[at].start, tokens[last].end + 1
        if len(parts) == 3 and not any(first < end and start < past for first, past, _ in known):
            new = renamed.get(FullName(*parts))
            if new is not None:
                edits.append((start, end, quoted_name(new)))
        at = last + 1
    return edits


def in_other_cluster(create_sql: str, cluster: str) -> str:
    """The definition of a materialized view or an index, in another cluster."""
    tokens = tokenize(create_sql)
    for before, at, name in zip(tokens, tokens[1:], tokens[2:], strict=False):
        words = before.text.upper(), at.text.upper()
        bare = TokenType.IDENTIFIER not in (before.token_type, at.token_type)
        if bare and words == ("IN", "CLUSTER"):
            return _edited(create_sql, [(name.start, name.end + 1, quoted(cluster))])
    return create_sql


def _edited(text: str, edits: list[Edit]) -> str:
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def _head(text: str, statement: st.Statement, new: FullName) -> Edit:
    """The edit of the object's own name: the first identifier with its qualifiers."""
    tokens = tokenize(text)
    first = next(i for i, t in enumerate(tokens) if t.token_type == TokenType.IDENTIFIER)
    last = _run(tokens, first)
    written = quoted(new.item) if isinstance(statement, st.CreateIndex) else quoted_name(new)
    return tokens[first].start, tokens[last].end + 1, written


def _run(tokens: list[Token], first: int) -> int:
    last = first
    while last + 2 < len(tokens) and tokens[last + 1].token_type == TokenType.DOT:
        last += 2
    return last


def _of_index(
    text: str, statement: st.CreateIndex, renamed: Mapping[FullName, FullName]
) -> list[Edit]:
    """Edits for the relation that an index is on, and for columns qualified by its name."""
    on = statement.on.partial
    assert on.schema is not None
    old = FullName(on.database, on.schema, on.item)
    new = renamed.get(old)
    if new is None:
        return []
    tokens = tokenize(text)
    first = next(i for i, t in enumerate(tokens) if t.start == statement.on.position - 1)
    last = _run(tokens, first)
    edits = [(tokens[first].start, tokens[last].end + 1, quoted_name(new))]
    for key in statement.keys or ():
        edits += _qualifiers(key, old, new, bare=True)
    return edits


def _references(text: str, query: exp.Expr, renamed: Mapping[FullName, FullName]) -> list[Edit]:
    edits: list[Edit] = []
    named: dict[FullName, list[exp.Table]] = {}
    for table in query.find_all(exp.Table):
        parts = [table.args.get(k) for k in ("catalog", "db", "this")]
        if all(isinstance(p, exp.Identifier) for p in parts):
            old = FullName(*(fold(p) for p in parts if isinstance(p, exp.Identifier)))
            if old in renamed:
                named.setdefault(old, []).append(table)
    for old, tables in named.items():
        new = renamed[old]
        spans = [_span(table) for table in tables]
        # Where the old name occurs alone elsewhere, it may qualify a column or mean the relation's row: keep it as an
        # alias.
        alias = new.item != old.item and _named_alone(text, old.item, spans)
        for table, (start, end) in zip(tables, spans, strict=True):
            aliased = alias and table.args.get("alias") is None
            edits.append(
                (start, end, quoted_name(new) + (f" AS {quoted(old.item)}" if aliased else ""))
            )
        edits += _qualifiers(query, old, None if alias else new, bare=False)
    return edits


def _span(table: exp.Table) -> tuple[int, int]:
    first, last = table.args["catalog"].meta, table.args["this"].meta
    return int(first["start"]), int(last["end"]) + 1


def _named_alone(text: str, name: str, spans: list[tuple[int, int]]) -> bool:
    tokens = tokenize(text)
    for i, token in enumerate(tokens):
        if token.token_type != TokenType.IDENTIFIER or token.text.replace('""', '"') != name:
            continue
        inside = any(start <= token.start < end for start, end in spans)
        after_dot = i > 0 and tokens[i - 1].token_type == TokenType.DOT
        if not inside and not after_dot:
            return True
    return False


def _qualifiers(node: exp.Expr, old: FullName, new: FullName | None, *, bare: bool) -> list[Edit]:
    """Edits for columns qualified by the old name with its schema (``bare``: also without); ``new`` None: by the old
    name alone from now on.
    """
    edits: list[Edit] = []
    for column in node.find_all(exp.Column):
        parts = [p for k in ("catalog", "db", "table") if (p := column.args.get(k)) is not None]
        if not parts or not all(isinstance(p, exp.Identifier) and "start" in p.meta for p in parts):
            continue
        names = tuple(fold(p) for p in parts)
        whole = tuple(p for p in (old.database, old.schema, old.item) if p is not None)
        if names != whole[-len(names) :] or (len(names) == 1 and not bare):
            continue
        replacement: tuple[str, ...] = (old.item,)
        if new is not None:
            replacement = (str(new.database), new.schema, new.item)[-len(names) :]
        start, end = int(parts[0].meta["start"]), int(parts[-1].meta["end"]) + 1
        edits.append((start, end, ".".join(quoted(name) for name in replacement)))
    return edits
