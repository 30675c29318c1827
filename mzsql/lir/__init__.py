"""LIR nodes with ids, lowering from MIR, and what refines a lowered plan.

`plan` holds the nodes; nothing here knows SQL text or an engine.
"""
