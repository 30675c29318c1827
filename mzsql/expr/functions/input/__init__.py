"""Values read from texts: what PostgreSQL calls input functions."""
