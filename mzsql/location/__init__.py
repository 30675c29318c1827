"""The room `location`."""
