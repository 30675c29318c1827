"""The objects of an environment and the changes to them: an immutable state, the pure commands that change it, its durable form,
and what is builtin.

Opens nothing but the catalog's own shard, and knows no session: it stands below `compute`, so that everything above may ask what exists.
"""
