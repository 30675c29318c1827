"""Functions whose rows are as a list of column definitions says: ``jsonb_to_recordset(doc) AS t (a int, b text)``.

Promise: a column is the member of its name, made a value of its type as PostgreSQL makes it: of a text by the type's own form, of an
array element by element; NULL where the document has no such member or has JSON's null. A document of another form is an error, and so
is an array within an array, of which PostgreSQL makes dimensions. The call is planned as the query that it means.
"""

from __future__ import annotations

from sqlglot import expressions as exp

from mzsql.frontend.names.types import resolve_type
from mzsql.frontend.parse.pieces import fold
from mzsql.frontend.scalar.context import QueryPlans
from mzsql.frontend.scalar.defined import filled
from mzsql.frontend.scalar.nodes import function_name, position_of
from mzsql.repr.errors import SqlSyntaxError, UndefinedFunction, Unsupported
from mzsql.repr.types import SqlType, type_name

_OF_ONE = frozenset({"jsonb_to_record", "json_to_record"})
_OF_MANY = frozenset({"jsonb_to_recordset", "json_to_recordset"})
NAMES = _OF_ONE | _OF_MANY
_DOCUMENT, _ROWS = "mz_document", "mz_documents"
#: A member by its name $2 of the document $1, as a document and as a text.
_MEMBER = "nullif($1 -> $2, 'null'::jsonb)"
_TEXT = "($1 ->> $2)"
#: The elements of an array of a member in their order; NULL where there is none.
_ELEMENTS = f"""CASE WHEN {_MEMBER} IS NULL THEN NULL
    WHEN mz_internal.mz_raise_if(jsonb_typeof($1 -> $2) <> 'array', 'expected JSON array') THEN NULL
    ELSE ARRAY(SELECT {{element}} FROM jsonb_array_elements($1 -> $2) WITH ORDINALITY AS mz_elements (mz_element, mz_place)
    ORDER BY mz_place) END"""
_OF_DOCUMENTS = _ELEMENTS.format(element="nullif(mz_element, 'null'::jsonb)")
#: The text of an element that is no array.
_OF_TEXTS = _ELEMENTS.format(
    element="CASE WHEN mz_internal.mz_raise_if(jsonb_typeof(mz_element) = 'array', "
    "'arrays of several dimensions are not made of documents') THEN NULL ELSE mz_element #>> '{}' END"
)
#: What $1 is, raised where it is of another form than $2.
_OF_FORM = "CASE WHEN mz_internal.mz_raise_if(jsonb_typeof($1) <> $2, $3) THEN NULL ELSE $1 END"


def as_query(planner: QueryPlans, node: exp.Expr, func: exp.Expr) -> exp.Select:
    """The query that a call in FROM means.

    Args:
        planner: resolves the columns' types.
        node: the call with its alias.
        func: the call alone.

    Raises:
        SqlSyntaxError: the alias defines no columns, or there is a WITH ORDINALITY.
        UndefinedFunction: the call has not one argument.
        Unsupported: a column has a type that is not made of documents.
    """
    name, given = function_name(func), list(func.expressions)
    if len(given) != 1:
        raise UndefinedFunction(
            f"function {name} of {len(given)} arguments does not exist", position=position_of(func)
        )
    columns = _definitions(node)
    if not columns:
        raise SqlSyntaxError(
            'a column definition list is required for functions returning "record"',
            position=position_of(func),
            hint=f"Name the columns and their types, as in {name}(…) AS t (a int, b text).",
        )
    if node.args.get("ordinality"):
        raise SqlSyntaxError(
            "WITH ORDINALITY cannot be used with a column definition list",
            position=position_of(func),
        )
    outputs = [
        exp.alias_(_column(planner, name, one), exp.to_identifier(fold(one.this), quoted=True))
        for one in columns
    ]
    document = exp.Cast(this=given[0].copy(), to=exp.DataType(this=exp.DType.JSONB))
    return exp.Select(expressions=outputs, from_=exp.From(this=_documents(name, document)))


def refuse_definitions(node: exp.Expr) -> None:
    """Refuse column definitions after what has columns of its own.

    Raises:
        SqlSyntaxError: there are some.
    """
    if _definitions(node):
        raise SqlSyntaxError(
            'a column definition list is only allowed for functions returning "record"',
            position=position_of(node),
        )


def _definitions(node: exp.Expr) -> list[exp.ColumnDef]:
    alias = node.args.get("alias")
    columns = [] if alias is None else alias.args.get("columns") or []
    return [one for one in columns if isinstance(one, exp.ColumnDef)]


def _documents(name: str, document: exp.Expr) -> exp.Expr:
    """The relation of the documents whose members are the rows."""
    column = exp.to_identifier(_DOCUMENT)
    if name in _OF_MANY:
        rows = _of_form(document, "array", f"cannot call {name} on a non-array")
        call = exp.Anonymous(this="jsonb_array_elements", expressions=[rows])
        alias = exp.TableAlias(this=exp.to_identifier(_ROWS), columns=[column])
        return exp.Table(this=call, alias=alias)
    row = _of_form(document, "object", f"cannot call {name} on a non-object")
    one = exp.Select(expressions=[exp.alias_(row, column)])
    return exp.Subquery(this=one, alias=exp.TableAlias(this=exp.to_identifier(_ROWS)))


def _of_form(document: exp.Expr, form: str, complaint: str) -> exp.Expr:
    """The document, which is an error if it is of another form (`jsonb_typeof`)."""
    return filled(_OF_FORM, [document, exp.Literal.string(form), exp.Literal.string(complaint)])


def _column(planner: QueryPlans, name: str, defined: exp.ColumnDef) -> exp.Expr:
    kind = defined.args["kind"]
    typ = resolve_type(kind, planner.types)
    document: exp.Expr = exp.column(_DOCUMENT, _ROWS)
    if name in _OF_MANY:
        complaint = f"argument of {name} must be an array of objects"
        document = _of_form(document, "object", complaint)
    parts = [document, exp.Literal.string(fold(defined.this))]
    if typ.kind == "jsonb":
        return filled(_MEMBER, parts)
    if _is_flat_array(typ):
        assert typ.element is not None
        whole = filled(_OF_DOCUMENTS if typ.element.kind == "jsonb" else _OF_TEXTS, parts)
        by_form = exp.If(
            this=filled("jsonb_typeof($1 -> $2) = 'string'", parts),
            true=exp.Cast(this=filled(_TEXT, parts), to=kind.copy()),
        )
        return exp.Case(ifs=[by_form], default=exp.Cast(this=whole, to=kind.copy()))
    if typ.element is not None or typ.kind == "record":
        raise Unsupported(
            f"a column of type {type_name(typ)} cannot be made of a document",
            position=position_of(defined),
            hint="Take the member as jsonb, and apart.",
        )
    return exp.Cast(this=filled(_TEXT, parts), to=kind.copy())


def _is_flat_array(typ: SqlType) -> bool:
    return typ.kind == "array" and typ.element is not None and typ.element.element is None
