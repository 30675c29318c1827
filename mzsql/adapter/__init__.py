"""The room `adapter`."""
