"""The grammar: sqlglot's Materialize dialect, widened and narrowed a part of the language at a time, and the tokens of a text.

Knows sqlglot and no statement of ours: everything else in the frontend may ask it.
"""
