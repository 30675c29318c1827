"""The room `repr`."""
