"""The room `dbapi`."""
