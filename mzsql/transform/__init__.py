"""The room `transform`."""
