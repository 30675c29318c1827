"""Formatting a definition as SHOW CREATE and the catalog's relations show it.

Promise: the text means what the stored definition means, and can be run. Types and functions have their schemas
(``"pg_catalog"."int4"``, ``"pg_catalog"."count"(*)``), every alias has AS, and spaces are where Materialize puts them.
The stored definition itself is not changed.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

from sqlglot import expressions as exp
from sqlglot.tokenizer_core import Token, TokenType

from mzsql.frontend.catalog import TEMPORARY_SCHEMA, is_temporary
from mzsql.frontend.definitions.normalize import quoted
from mzsql.frontend.grammar.tokens import tokenize
from mzsql.frontend.names.types import resolve_type
from mzsql.frontend.parse import statements as st
from mzsql.frontend.parse.parse import parse_statements
from mzsql.frontend.parse.pieces import fold
from mzsql.frontend.scalar.qualified import schemas_of
from mzsql.repr.types import SqlType, type_name

#: Constructs that look like function calls and are none.
_SYNTAX = frozenset(
    {
        *("array", "cast", "coalesce", "exists", "extract", "greatest", "least", "list", "map"),
        *("normalize", "nullif", "overlay", "position", "row", "substring", "trim"),
    }
)
_NAMES = {
    "boolean": "bool",
    "smallint": "int2",
    "integer": "int4",
    "bigint": "int8",
    "real": "float4",
    "double": "float8",
    "char": "bpchar",
}
_OF_MATERIALIZE = frozenset({"uint2", "uint4", "uint8", "mz_timestamp"})
_TIGHT_AFTER = frozenset({"(", "[", ".", "::", ":"})
_VALUES = frozenset(
    {TokenType.IDENTIFIER, TokenType.VAR, TokenType.STRING, TokenType.NUMBER, TokenType.R_PAREN}
    | {TokenType.R_BRACKET, TokenType.NULL, TokenType.TRUE, TokenType.FALSE, TokenType.END}
)

_LITERALS = frozenset(
    {TokenType.STRING, TokenType.NUMBER, TokenType.HEX_STRING, TokenType.BIT_STRING}
    | {TokenType.BYTE_STRING, TokenType.NATIONAL_STRING, TokenType.HEREDOC_STRING}
)
REDACTED = "'<REDACTED>'"
"""Replaces a literal."""

Edits = dict[int, tuple[int, str]]
"""From the start of a piece to its end (exclusive) and its replacement."""
_Span = tuple[int, int]
"""Start and end (exclusive) of a piece of text."""


def shown_sql(create_sql: str) -> str:
    """A stored definition as it is shown; an empty one stays empty."""
    return _shown(create_sql)[0]


@functools.lru_cache(1 << 14)
def _shown(create_sql: str) -> tuple[str, _Span]:
    """A stored definition as it is shown, and where in that text a view's query is."""
    if not create_sql:
        return create_sql, (0, 0)
    (statement,) = parse_statements(create_sql)
    edits: Edits = dict(_temporary(create_sql))
    aliases: set[int] = set()
    for root in statement.trees():
        for node in root.walk():
            if isinstance(node, exp.Cast):
                _typed_literal(node, edits)
            if isinstance(node, exp.DataType):
                _type(node, edits)
            elif isinstance(node, exp.Anonymous):
                _function(node, edits)
            elif isinstance(node, exp.Alias | exp.TableAlias):
                at = _alias(node)
                if at is not None:
                    aliases.add(at)
    query = statement.query.span if isinstance(statement, st.CreateView) else (0, 0)
    return _printed(create_sql, edits, aliases, query)


def _temporary(create_sql: str) -> Iterator[tuple[int, tuple[int, str]]]:
    """Edits for names of temporary objects, of three quoted parts: their schema is shown by the name that all know."""
    tokens = tokenize(create_sql)
    for database, dot, schema in zip(tokens, tokens[1:], tokens[2:], strict=False):
        kinds = database.token_type, dot.token_type, schema.token_type
        if kinds == (TokenType.IDENTIFIER, TokenType.DOT, TokenType.IDENTIFIER) and is_temporary(
            schema.text
        ):
            yield database.start, (schema.end + 1, quoted(TEMPORARY_SCHEMA))


@functools.lru_cache(1 << 14)
def redacted_sql(create_sql: str) -> str:
    """A definition as it is shown, with all literals redacted."""
    text = shown_sql(create_sql)
    if not text:
        return text
    (statement,) = parse_statements(text)
    # A type's modifier is not a literal value.
    kept = {
        node.meta.get("start")
        for root in statement.trees()
        for node in root.find_all(exp.Literal)
        if isinstance(node.parent, exp.DataTypeParam)
    }
    pieces, at = [], 0
    for token in tokenize(text):
        if token.token_type in _LITERALS and token.start not in kept:
            pieces += [text[at : token.start], REDACTED]
            at = token.end + 1
    return "".join([*pieces, text[at:]])


@functools.lru_cache(1 << 14)
def shown_query(create_sql: str) -> str:
    """The query of a view's definition, as it is shown."""
    text, (start, end) = _shown(create_sql)
    return f"{text[start:end]};"


@functools.lru_cache(1 << 14)
def shown_defaults(create_sql: str) -> tuple[str | None, ...]:
    """The default of each column in a table's definition, as it is shown; None where a column has none."""
    text = shown_sql(create_sql)
    parsed = parse_statements(text)
    found: list[str | None] = []
    for column in parsed[0].columns if parsed and isinstance(parsed[0], st.CreateTable) else ():
        start, end = (0, 0) if column.default is None else column.default.meta["span"]
        found.append(text[start:end] or None)
    return tuple(found)


# --- types ----------------------------------------------------------------------------------------


def _typed_literal(node: exp.Cast, edits: Edits) -> None:
    """``DATE '2020-01-01'`` is shown as a cast."""
    start = node.meta.get("start")
    target = node.args["to"]
    if start is None or not isinstance(target, exp.DataType):
        return
    text = str(node.this.this).replace("'", "''")
    edits[int(start)] = (int(node.meta["end"]) + 1, f"'{text}'::{written_type(target)}")


def _type(node: exp.DataType, edits: Edits) -> None:
    span = node.meta.get("span")
    if span is not None and not any(start <= span[0] < end for start, (end, _) in edits.items()):
        edits[int(span[0])] = (int(span[1]), written_type(node))


def written_type(node: exp.DataType) -> str:
    """A type as written, with its schema and PostgreSQL's internal name."""
    name = node.this.value if isinstance(node.this, exp.DType) else str(node.this)
    # MAP without types is no type; it is refused below.
    if name in ("ARRAY", "LIST") and node.expressions:
        return written_type(node.expressions[0]) + ("[]" if name == "ARRAY" else " list")
    if name == "MAP" and node.expressions:
        key, value = (written_type(part) for part in node.expressions)
        return f"MAP[{key}=>{value}]"
    parts = node.meta.get("parts") or ()
    if len(parts) == 3:
        return ".".join(quoted(part) for part in parts)
    typ = resolve_type(node)
    said = [p for p in node.expressions if isinstance(p, exp.DataTypeParam)]
    modifiers = ", ".join(str(p.this.name) for p in said)
    if typ.kind == "char" and not said and typ.length is not None:
        modifiers = str(typ.length)
    base = _base_name(typ)
    schema = "mz_catalog" if typ.kind in _OF_MATERIALIZE else "pg_catalog"
    return f"{quoted(schema)}.{quoted(base)}" + (f"({modifiers})" if modifiers else "")


def _base_name(typ: SqlType) -> str:
    if typ.kind in ("range", "text"):
        return type_name(typ).strip('"')
    if typ.kind == "array" and typ.element is not None:
        return f"_{_base_name(typ.element)}"
    return _NAMES.get(typ.kind, typ.kind)


# --- functions and aliases ------------------------------------------------------------------------


def _function(node: exp.Anonymous, edits: Edits) -> None:
    name = fold(node.this) if isinstance(node.this, exp.Identifier) else str(node.this).lower()
    place = node.this.meta if isinstance(node.this, exp.Identifier) else node.meta
    start = place.get("start")
    if start is None or name in _SYNTAX:
        return
    written = quoted(name)
    # The user may have written the schema already.
    if not (_is_qualified(node) or _in_qualified_table(node)):
        written = f"{quoted(schemas_of(name)[0])}.{written}"
    edits[int(start)] = (int(place["end"]) + 1, written)


def _is_qualified(node: exp.Expr) -> bool:
    parent = node.parent
    while isinstance(parent, exp.Filter | exp.Window | exp.IgnoreNulls | exp.RespectNulls):
        if parent.this is not node:
            return False
        node, parent = parent, parent.parent
    if isinstance(parent, exp.Column):
        return parent.this is node
    return isinstance(parent, exp.Dot) and parent.expression is node


def _in_qualified_table(node: exp.Anonymous) -> bool:
    parent = node.parent
    return isinstance(parent, exp.Table) and parent.args.get("db") is not None


def _alias(node: exp.Alias | exp.TableAlias) -> int | None:
    """The start of an alias in the text."""
    name = node.args["alias"] if isinstance(node, exp.Alias) else node.this
    if not isinstance(name, exp.Identifier) or isinstance(node.parent, exp.CTE):
        return None
    start = name.meta.get("start")
    return None if start is None else int(start)


# --- tokens ---------------------------------------------------------------------------------------


def _printed(text: str, edits: Edits, aliases: set[int], piece: _Span) -> tuple[str, _Span]:
    """The text as it is printed, and where in it a piece of the text is that begins and ends with a token."""
    pieces: list[str] = []
    start, last = 0, 0
    before: Token | None = None
    behind_name, prefix, skip_to = False, False, 0
    for token in tokenize(text):
        if token.start < skip_to:
            before = token
            continue
        replaced = edits.get(token.start)
        written = _written(token, text, before) if replaced is None else replaced[1]
        skip_to = token.end + 1 if replaced is None else replaced[0]
        if before is not None:
            pieces.append("" if _tight(before, token, behind_name, prefix) else " ")
        if token.start in aliases and before is not None and before.text.upper() != "AS":
            pieces.append("AS ")
        if token.start == piece[0]:
            start = sum(map(len, pieces))
        pieces.append(written)
        if piece[0] <= token.start < piece[1]:
            last = len(pieces)
        value = behind_name or (before is not None and before.token_type in _VALUES)
        prefix = token.text in ("-", "+") and not value
        called = before is None or before.text.upper() != "AS"
        behind_name = replaced is not None or (called and written.lower() in _SYNTAX)
        before = token
    return "".join(pieces), (start, sum(map(len, pieces[:last])))


def _tight(before: Token, token: Token, behind_name: bool, prefix: bool) -> bool:
    """Whether no space is printed between two tokens."""
    one = before.text if before.token_type not in (TokenType.STRING, TokenType.IDENTIFIER) else ""
    two = token.text if token.token_type not in (TokenType.STRING, TokenType.IDENTIFIER) else ""
    if one in _TIGHT_AFTER or two in (")", "]", ",", ".", "::", ":", ";"):
        return True
    if two == "[":
        return before.token_type in _VALUES or one.upper() in ("ARRAY", "LIST", "MAP")
    if prefix and token.token_type == TokenType.NUMBER:
        return True
    return two == "(" and behind_name


def _written(token: Token, text: str, before: Token | None) -> str:
    source = text[token.start : token.end + 1]
    if token.token_type in (TokenType.TRUE, TokenType.FALSE):
        # TRUE, FALSE and NULL are literals, unless they are part of an IS predicate.
        test = before is not None and before.token_type in (TokenType.IS, TokenType.NOT)
        return source.upper() if test else source.lower()
    if token.token_type == TokenType.VAR or (
        source[:1].isalpha()
        and token.token_type not in (TokenType.BYTE_STRING, TokenType.HEREDOC_STRING)
    ):
        return " ".join(source.upper().split())
    return "<>" if source == "!=" else source
