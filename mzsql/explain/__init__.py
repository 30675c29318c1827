"""EXPLAIN: every stage of a plan as text or JSON."""
