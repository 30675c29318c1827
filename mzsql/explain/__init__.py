"""The room `explain`."""
