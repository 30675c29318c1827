"""The room `persist`."""
