"""The room `spark`."""
