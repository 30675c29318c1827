"""Rendering: from LIR to the SQL of steps, hydrations and one-shot queries, as sqlglot ASTs. Pure: nothing here runs
anything.

docs/architecture.md, "The way of an update through a dataflow", says when which of them is run.
"""
