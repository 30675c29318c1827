"""The grammar: sqlglot's Materialize dialect, extended and restricted part by part; and the tokens of a text.

It knows sqlglot and no statement of ours, so everything else in the frontend may import it.
"""
