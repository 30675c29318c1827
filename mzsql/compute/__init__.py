"""The room `compute`."""
