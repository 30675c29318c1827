"""Rendering: from LIR to the SQL of steps, hydrations and one-shot queries, as sqlglot ASTs. Pure: nothing here runs
anything.
"""
