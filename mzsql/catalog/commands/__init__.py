"""The commands of the catalog: pure functions from a state to a `Change`, one module for each kind of thing that they
are about.
"""
