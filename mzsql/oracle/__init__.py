"""The room `oracle`."""
