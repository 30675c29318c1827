"""HIR to MIR: decorrelating subqueries, expanding outer joins, normalizing bindings. The entry point is `lower`."""
