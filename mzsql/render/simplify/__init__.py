"""What is left of an expression of DuckDB's where it is known what its columns may be.

Promise: `Simplifier.of` returns an expression that has the same value and the same type over all rows that its columns' facts allow, and
that raises at most where the given one does. What is proven not to fail loses its guards (``TRY``, ``TRY_CAST``); what is proven NULL,
TRUE, FALSE or one number is written as that; whatever it does not know it leaves as it is. Where it is not certain which type DuckDB
gives an operation, the type counts as unknown, and casts around it stay. A rule is a function in the file of its kind, named in the table
of `simplifier.py`.
"""

from mzsql.render.simplify.pieces import Ast
from mzsql.render.simplify.simplifier import SETTLED, Simplifier

__all__ = ["SETTLED", "Ast", "Simplifier"]
