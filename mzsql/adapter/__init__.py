"""The coordinator around the engine: sessions, timestamps, group commit, queries, DDL, leadership, opening.

`Environment` opens the durable stores, `Coordinator` serves sessions on it, and `EnvironmentReader` reads without
sessions or leadership (what Spark's data source needs). docs/architecture.md lists the packages in here, in the order
of their imports.
"""
