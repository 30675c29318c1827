"""Simplifies DuckDB expressions by what is known of their columns.

Promise: `Simplifier.of` returns an expression with the same value and the same type over all rows that its columns'
facts allow, which throws at most where the given one does. What is proven not to fail loses its guards (``TRY``,
``TRY_CAST``); what is proven NULL, TRUE, FALSE or a single number is written as that; anything unknown is left as it
is. If the type that DuckDB gives an operation is not certain, it counts as unknown, and casts around it stay. A rule
is a function in the module of its kind, registered in the table in `simplifier.py`.
"""

from mzsql.render.simplify.pieces import Ast
from mzsql.render.simplify.simplifier import SETTLED, Simplifier

__all__ = ["SETTLED", "Ast", "Simplifier"]
