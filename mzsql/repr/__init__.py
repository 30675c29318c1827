"""The ground floor: SQL types, values, relation shapes, ids, times and frontiers, and the errors a person may meet.

Nothing here does IO or knows an engine; everything is immutable and compares by value.
"""
