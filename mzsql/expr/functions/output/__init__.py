"""Values as text: what PostgreSQL calls output functions. `to_text` has those of every type."""
