"""The room `frontend`."""
