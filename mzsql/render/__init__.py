"""The room `render`."""
