"""The room `storage`."""
