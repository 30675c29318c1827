"""The room `lir`."""
