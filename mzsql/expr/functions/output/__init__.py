"""Values as text: PostgreSQL's output functions. `to_text` covers every type."""
