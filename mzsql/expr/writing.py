"""Statements written for DuckDB, as sqlglot writes them, for a fraction of the time.

Promise: `write` gives the text that sqlglot's generator gives of the same tree, character for character, or says that it does not know how
(`Unwritten`); the tree is only read, so threads may write one at once, and its parts may stand in several places. What it knows are the
nodes that rendering makes; whatever else a tree has, and every form of a known node that rendering does not make, is sqlglot's to write.

Trade-off: the forms of some sixty nodes stand here a second time. A hydration's texts were a third of what a view over few rows costs:
sqlglot copies a tree before it writes it, makes a type's text anew for each of a thousand casts, and looks each node up in several ways.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from sqlglot import expressions as exp

from mzsql.expr.type_texts import Unwritten, type_text
from mzsql.repr.interrupt import check_for_interrupts


def write(tree: exp.Expression) -> str:
    """A tree's text, every identifier quoted.

    Raises:
        Unwritten: it has a node, or a form of one, that is not known here.
    """
    writer = _WRITERS.get(type(tree))
    if writer is None:
        raise Unwritten(type(tree).__name__)
    return writer(tree)


_THIS = frozenset(("this",))


def _only(node: exp.Expression, known: frozenset[str]) -> dict[str, Any]:
    """The parts of a node, which has no others than the known ones."""
    args: dict[str, Any] = node.args
    for name, value in args.items():
        if name not in known and value is not None and value is not False and value != []:
            raise Unwritten(f"{type(node).__name__}.{name}")
    return args


def _listed(nodes: Iterable[exp.Expression] | None) -> str:
    check_for_interrupts()
    return ", ".join([write(node) for node in nodes or ()])


@lru_cache(maxsize=8192)
def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _name(node: Any) -> str:
    """An identifier's text where it does not stand among a function's arguments."""
    if type(node) is not exp.Identifier:
        return write(node)
    return _quoted(node.args["this"])


def _identifier(node: exp.Expression) -> str:
    if not node.args.get("quoted"):
        # Whether sqlglot quotes it depends on where it stands.
        raise Unwritten("Identifier")
    return _quoted(node.args["this"])


def _literal(node: exp.Expression) -> str:
    args = node.args
    text: str = args["this"] or ""
    return "'" + text.replace("'", "''") + "'" if args.get("is_string") else text


_COLUMN = frozenset(("this", "table"))


def _column(node: exp.Expression) -> str:
    args = node.args
    if len(args) > 1:
        table = _only(node, _COLUMN).get("table")
        if table:
            return f"{_name(table)}.{_name(args['this'])}"
    return _name(args["this"])


def _paren(node: exp.Expression) -> str:
    return f"({write(node.args['this'])})"


# --- types ---

_CAST = frozenset(("this", "to", "safe"))


def _cast(node: exp.Expression) -> str:
    args = _only(node, _CAST)
    return f"CAST({write(args['this'])} AS {type_text(args['to'])})"


def _try_cast(node: exp.Expression) -> str:
    args = _only(node, _CAST)
    return f"TRY_CAST({write(args['this'])} AS {type_text(args['to'])})"


# --- operators ---

_BINARY = frozenset(("this", "expression"))


def _operand(node: exp.Expression) -> str:
    """What stands beside an operator: shifts do so in parentheses."""
    text = write(node)
    return f"({text})" if type(node) in _SHIFTS else text


def _binary(operator: str) -> Callable[[exp.Expression], str]:
    def written(node: exp.Expression) -> str:
        kind, right = type(node), list[str]()
        at: Any = node
        # Long sums lean to the left.
        while type(at) is kind:
            args = _only(at, _BINARY)
            right.append(_operand(args["expression"]))
            at = args["this"]
        return operator.join([_operand(at), *reversed(right)])

    return written


def _multiplicative(operator: str) -> Callable[[exp.Expression], str]:
    """As `_binary`, of what binds as a remainder does, which stands to the right of it in parentheses."""

    def written(node: exp.Expression) -> str:
        kind, right = type(node), list[str]()
        at: Any = node
        while type(at) is kind:
            args = _only(at, _BINARY)
            other = args["expression"]
            text = _operand(other)
            right.append(f"({text})" if type(other) is exp.Mod else text)
            at = args["this"]
        return operator.join([_operand(at), *reversed(right)])

    return written


def _remainder(node: exp.Expression) -> str:
    args = _only(node, _BINARY)
    other = args["expression"]
    right = f"({write(other)})" if type(other) is exp.Mod else _operand(other)
    return f"{_operand(args['this'])} % {right}"


def _bits(operator: str) -> Callable[[exp.Expression], str]:
    """An operator on the bits of integers; those of bytes are sqlglot's, which has to know the types."""

    def written(node: exp.Expression) -> str:
        args = _only(node, _BINARY)
        sides = args["this"], args["expression"]
        if any(type(side) is type(node) or not _whole(side) for side in sides):
            raise Unwritten(type(node).__name__)
        return operator.join(map(_operand, sides))

    return written


def _whole(node: exp.Expression) -> bool:
    """Whether sqlglot takes a value for no bytes."""
    if isinstance(node, exp.Cast):
        return node.to.this not in _BYTES
    return node.type is None


_BYTES = frozenset((exp.DType.BINARY, exp.DType.VARBINARY, exp.DType.BLOB))
_SHIFTS: frozenset[type[exp.Expression]]
_SHIFTS = frozenset((exp.BitwiseLeftShift, exp.BitwiseRightShift))


def _is(node: exp.Expression) -> str:
    args = node.args
    operator = "IS NOT" if _only(node, _IS).get("negate") else "IS"
    if type(args["this"]) is exp.Is:
        raise Unwritten("Is")
    return f"{_operand(args['this'])} {operator} {_operand(args['expression'])}"


_IS = frozenset(("this", "expression", "negate"))


def _not(node: exp.Expression) -> str:
    return f"NOT {write(node.args['this'])}"


def _negated(node: exp.Expression) -> str:
    text = write(node.args["this"])
    return f"- {text}" if text[0] == "-" else f"-{text}"


_BETWEEN = frozenset(("this", "low", "high"))


def _between(node: exp.Expression) -> str:
    args = _only(node, _BETWEEN)
    if args.get("symmetric") is not None:
        raise Unwritten("Between")
    return f"{write(args['this'])} BETWEEN {write(args['low'])} AND {write(args['high'])}"


def _like(node: exp.Expression) -> str:
    args = _only(node, _BINARY)
    if isinstance(args["expression"], exp.All | exp.Any) or type(args["this"]) is exp.Like:
        raise Unwritten("Like")
    return f"{_operand(args['this'])} LIKE {_operand(args['expression'])}"


def _escape(node: exp.Expression) -> str:
    args = _only(node, _BINARY)
    if type(args["this"]) is exp.Escape:
        raise Unwritten("Escape")
    return f"{_operand(args['this'])} ESCAPE {_operand(args['expression'])}"


def _dot(node: exp.Expression) -> str:
    args = _only(node, _BINARY)
    field = args["expression"]
    if isinstance(field, exp.Func):
        # The name of a function behind a dot is written as it stands.
        raise Unwritten("Dot")
    return f"{_operand(args['this'])}.{_name(field)}"


# --- conditions ---

_CASE = frozenset(("this", "ifs", "default"))
_IF = frozenset(("this", "true"))
_ALONE = frozenset(("this", "true", "false"))


def _case(node: exp.Expression) -> str:
    args = _only(node, _CASE)
    begin = f"CASE {write(args['this'])}" if args.get("this") else "CASE"
    return _branches(begin, args["ifs"], args.get("default"))


def _if(node: exp.Expression) -> str:
    return _branches("CASE", [node], _only(node, _ALONE).get("false"))


def _branches(begin: str, ifs: Iterable[exp.Expression], default: exp.Expression | None) -> str:
    parts = [begin]
    for one in ifs:
        args = one.args
        parts.append(f"WHEN {write(args['this'])} THEN {write(args['true'])}")
    if default is not None:
        parts.append(f"ELSE {write(default)}")
    parts.append("END")
    return " ".join(parts)


# --- functions and values of several parts ---


def _anonymous(node: exp.Expression) -> str:
    args = node.args
    name = args["this"]
    if not isinstance(name, str):
        raise Unwritten("Anonymous")
    return f"{name.upper()}({_arguments(args.get('expressions') or ())})"


def _arguments(nodes: Iterable[Any]) -> str:
    return ", ".join([write(one) for one in nodes if one is not None and not isinstance(one, bool)])


def _function(name: str) -> Callable[[exp.Expression], str]:
    def written(node: exp.Expression) -> str:
        given: list[Any] = []
        for key in type(node).arg_types:
            value = node.args.get(key)
            if isinstance(value, list):
                given += value
            elif value is not None:
                given.append(value)
        return f"{name}({_arguments(given)})"

    return written


def _extreme(name: str) -> Callable[[exp.Expression], str]:
    return lambda node: f"{name}({write(_only(node, _THIS)['this'])})"


_ORDER = frozenset(("this", "expressions"))


def _ordered_argument(node: exp.Expression) -> str:
    args = _only(node, _ORDER)
    if not args.get("this"):
        # A query's, which writes it.
        raise Unwritten("Order")
    return f"{write(args['this'])} ORDER BY {_listed(args['expressions'])}"


_ARRAY = frozenset(("expressions",))


def _array(node: exp.Expression) -> str:
    items = _only(node, _ARRAY).get("expressions") or []
    if len(items) == 1 and isinstance(items[0], exp.Query):
        raise Unwritten("Array")
    return f"[{_listed(items)}]"


def _struct(node: exp.Expression) -> str:
    fields = _only(node, _ARRAY).get("expressions")
    parts = []
    for field in fields or (None,):
        if type(field) is not exp.PropertyEQ:
            raise Unwritten("Struct")
        key = field.args["this"]
        name = _string(key.name) if isinstance(key, exp.Identifier) else write(key)
        parts.append(f"{name}: {write(field.args['expression'])}")
    return f"{{{', '.join(parts)}}}"


def _string(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _star(node: exp.Expression) -> str:
    _only(node, frozenset())
    return "*"


_LAMBDA = frozenset(("this", "expressions"))


def _lambda(node: exp.Expression) -> str:
    args = _only(node, _LAMBDA)
    return f"LAMBDA {', '.join(map(_name, args['expressions']))} : {write(args['this'])}"


_DISTINCT = frozenset(("expressions",))


def _distinct(node: exp.Expression) -> str:
    items = _listed(_only(node, _DISTINCT).get("expressions"))
    return f"DISTINCT {items}" if items else "DISTINCT"


def _filter(node: exp.Expression) -> str:
    args = _only(node, _BINARY)
    if not isinstance(args["this"], exp.Sum | exp.Count | exp.Max | exp.Min | exp.Anonymous):
        raise Unwritten("Filter")
    return f"{write(args['this'])} FILTER({write(args['expression']).strip()})"


# --- windows and orders ---

_WINDOW = frozenset(("this", "partition_by", "order", "spec"))
_ORDERED = frozenset(("this", "desc", "nulls_first"))
_SPEC = frozenset(("kind", "start", "start_side", "end", "end_side"))


def _window(node: exp.Expression) -> str:
    args = _only(node, _WINDOW)
    if isinstance(args["this"], exp.Corr | exp.Filter):
        raise Unwritten("Window")
    parts = []
    if args.get("partition_by"):
        parts.append(f"PARTITION BY {_listed(args['partition_by'])}")
    if args.get("order"):
        parts.append(f"ORDER BY {_listed(_only(args['order'], _ARRAY)['expressions'])}")
    if args.get("spec"):
        parts.append(write(args["spec"]))
    return f"{write(args['this'])} OVER ({' '.join(parts)})"


def _ordered(node: exp.Expression) -> str:
    args = _only(node, _ORDERED)
    desc = args.get("desc")
    way = " DESC" if desc else (" ASC" if desc is False else "")
    return f"{write(args['this'])}{way}{' NULLS FIRST' if args.get('nulls_first') else ''}"


def _bound(args: Mapping[str, Any], side: str) -> str:
    parts = (args.get(side), args.get(f"{side}_side"))
    return " ".join(one if isinstance(one, str) else write(one) for one in parts if one)


def _spec(node: exp.Expression) -> str:
    args = _only(node, _SPEC)
    end = _bound(args, "end") or "CURRENT ROW"
    return f"{args['kind']} BETWEEN {_bound(args, 'start')} AND {end}"


# --- relations ---

_TABLE = frozenset(("this", "db", "alias"))
_ALIAS = frozenset(("this", "columns"))
_SUBQUERY = frozenset(("this", "alias"))
_CTE = frozenset(("this", "alias", "materialized"))
_WITH = frozenset(("expressions", "recursive"))
_JOIN = frozenset(("this", "side", "kind", "on"))


def _aliased(node: exp.Expression) -> str:
    args = node.args
    return f"{write(args['this'])} AS {_name(args['alias'])}"


def _table(node: exp.Expression) -> str:
    args = _only(node, _TABLE)
    name = _name(args["this"])
    if args.get("db"):
        name = f"{_name(args['db'])}.{name}"
    return f"{name} AS {write(args['alias'])}" if args.get("alias") else name


def _table_alias(node: exp.Expression) -> str:
    args = _only(node, _ALIAS)
    columns = ", ".join(map(_name, args.get("columns") or ()))
    return f"{_name(args['this'])}({columns})" if columns else _name(args["this"])


def _subquery(node: exp.Expression) -> str:
    args = _only(node, _SUBQUERY)
    alias = f" AS {write(args['alias'])}" if args.get("alias") else ""
    return f"({write(args['this'])}){alias}"


def _cte(node: exp.Expression) -> str:
    args = _only(node, _CTE)
    how = args.get("materialized")
    kind = "" if how is None else ("MATERIALIZED " if how else "NOT MATERIALIZED ")
    return f"{write(args['alias'])} AS {kind}({write(args['this'])})"


def _with(node: exp.Expression) -> str:
    args = _only(node, _WITH)
    return f"WITH {'RECURSIVE ' if args.get('recursive') else ''}{_listed(args['expressions'])}"


def _join(node: exp.Expression) -> str:
    args = _only(node, _JOIN)
    side, kind = (str(args.get(name) or "").upper() for name in ("side", "kind"))
    if kind in ("MARK", "SINGLE") or (side and kind in ("SEMI", "ANTI")):
        raise Unwritten("Join")
    this = write(args["this"])
    if args.get("on"):
        return f" {' '.join(filter(None, (side, kind, 'JOIN')))} {this} ON {write(args['on'])}"
    if type(args["this"]) not in (exp.Table, exp.Subquery):
        raise Unwritten("Join")
    if kind in ("", "INNER", "OUTER"):
        return f", {this}"
    return f" {' '.join(filter(None, (side, kind, 'JOIN')))} {this}"


# --- queries ---

_MODIFIERS = frozenset(
    ("joins", "where", "group", "having", "order", "limit", "offset", "with_"),
)
_SELECT = _MODIFIERS | {"expressions", "from_", "distinct"}
_SET = _MODIFIERS | {"this", "expression", "distinct"}
_LIMIT = frozenset(("expression",))


def _select(node: exp.Expression) -> str:
    args = _only(node, _SELECT)
    distinct = f" {write(args['distinct'])}" if args.get("distinct") else ""
    items = _listed(args.get("expressions"))
    origin = args.get("from_")
    from_ = "" if origin is None else f" FROM {write(_only(origin, _THIS)['this'])}"
    return _modified(args, f"SELECT{distinct}{' ' if items else ''}{items}{from_}")


def _modified(args: Mapping[str, Any], text: str) -> str:
    """A query's text with what stands around it."""
    parts = [text]
    parts += [write(one) for one in args.get("joins") or ()]
    for name, begin in (("where", " WHERE "), ("having", " HAVING ")):
        if name == "having" and args.get("group"):
            parts.append(f" GROUP BY {_listed(_only(args['group'], _ARRAY)['expressions'])}")
        if args.get(name):
            parts.append(f"{begin}{write(_only(args[name], _THIS)['this'])}")
    if args.get("order"):
        parts.append(f" ORDER BY {_listed(_only(args['order'], _ARRAY)['expressions'])}")
    for name, begin in (("limit", " LIMIT "), ("offset", " OFFSET ")):
        if args.get(name):
            parts.append(f"{begin}{write(_only(args[name], _LIMIT)['expression'])}")
    made = "".join(parts)
    return f"{write(args['with_'])} {made}" if args.get("with_") else made


def _set_operation(node: exp.Expression) -> str:
    args = _only(node, _SET)
    parts: list[str] = []
    at: Any = node
    # Unions of many lean to the left.
    while isinstance(at, exp.SetOperation):
        if at is not node and any(at.args.get(name) for name in _MODIFIERS):
            break
        all_ = "" if _only(at, _SET).get("distinct", True) else " ALL"
        parts += [write(at.args["expression"]), f"{type(at).key.upper()}{all_}"]
        at = at.args["this"]
    parts.append(write(at))
    return _modified(args, " ".join(reversed(parts)))


_PLAIN: Mapping[type[Any], str] = MappingProxyType(
    {
        exp.Add: "+",
        exp.Sub: "-",
        exp.EQ: "=",
        exp.NEQ: "<>",
        exp.LT: "<",
        exp.LTE: "<=",
        exp.GT: ">",
        exp.GTE: ">=",
        exp.DPipe: "||",
        exp.And: "AND",
        exp.Or: "OR",
        exp.NullSafeEQ: "IS NOT DISTINCT FROM",
        exp.NullSafeNEQ: "IS DISTINCT FROM",
    }
)

_WRITERS: Mapping[type[Any], Callable[[Any], str]] = MappingProxyType(
    {
        **{kind: _binary(f" {operator} ") for kind, operator in _PLAIN.items()},
        exp.Mul: _multiplicative(" * "),
        exp.IntDiv: _multiplicative(" // "),
        exp.Mod: _remainder,
        exp.BitwiseAnd: _bits(" & "),
        exp.BitwiseLeftShift: _bits(" << "),
        exp.BitwiseRightShift: _bits(" >> "),
        exp.Identifier: _identifier,
        exp.Literal: _literal,
        exp.Column: _column,
        exp.Paren: _paren,
        exp.Cast: _cast,
        exp.TryCast: _try_cast,
        exp.Null: lambda _: "NULL",
        exp.Boolean: lambda node: "TRUE" if node.args.get("this") else "FALSE",
        exp.Star: _star,
        exp.Is: _is,
        exp.Not: _not,
        exp.Neg: _negated,
        exp.Between: _between,
        exp.Like: _like,
        exp.Escape: _escape,
        exp.Dot: _dot,
        exp.Case: _case,
        exp.If: _if,
        exp.Anonymous: _anonymous,
        exp.Sum: _function("SUM"),
        exp.Count: _function("COUNT"),
        exp.Coalesce: _function("COALESCE"),
        exp.Max: _extreme("MAX"),
        exp.Min: _extreme("MIN"),
        exp.Order: _ordered_argument,
        exp.Array: _array,
        exp.Struct: _struct,
        exp.Lambda: _lambda,
        exp.Distinct: _distinct,
        exp.Filter: _filter,
        exp.Where: lambda node: f" WHERE {write(_only(node, _THIS)['this'])}",
        exp.Exists: lambda node: f"EXISTS({write(_only(node, _THIS)['this'])})",
        exp.Window: _window,
        exp.WindowSpec: _spec,
        exp.Ordered: _ordered,
        exp.Alias: _aliased,
        exp.Table: _table,
        exp.TableAlias: _table_alias,
        exp.Subquery: _subquery,
        exp.CTE: _cte,
        exp.With: _with,
        exp.Join: _join,
        exp.Select: _select,
        exp.Union: _set_operation,
        exp.Except: _set_operation,
        exp.Intersect: _set_operation,
    }
)
