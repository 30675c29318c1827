"""The coordinator around the engine: catalog, expression cache, sessions, timestamps, group commit, peeks, startup.

`Environment` opens the durable stores, `Coordinator` serves sessions on it, `EnvironmentReader` reads without either leading or
planning more than a name (what Spark's data source needs).
"""
