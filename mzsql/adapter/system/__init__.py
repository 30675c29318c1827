"""The rows of builtin relations: of what the catalog holds and of what this process knows."""
