"""An open environment in this process: its backends, shards, catalog,
collections and oracle; who leads it; how its waits are interrupted.
"""
