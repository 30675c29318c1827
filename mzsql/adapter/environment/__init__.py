"""An open environment in this process: its backends, shards, catalog, collections and oracle; leadership; the
expression cache.
"""
