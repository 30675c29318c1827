"""HIR to MIR: subqueries decorrelated, outer joins spelled out, bindings put in order. `lower` is the entry."""
