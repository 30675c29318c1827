"""The rows of builtin relations that are computed when read, from the catalog and from what this process knows."""
