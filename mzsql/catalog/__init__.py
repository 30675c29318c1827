"""The catalog: an environment's objects as an immutable state, the pure commands that change it, its durable form, and
the builtin relations.

It opens nothing but its own shard and knows no session. It is below `compute`, so that everything above may ask what
exists. See docs/architecture.md, decision 8.
"""
