"""From LIR to the SQL of a step, of a hydration and of a one-shot query, as sqlglot ASTs; pure: nothing here runs anything."""
