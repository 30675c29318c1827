"""Values parsed from text: PostgreSQL's input functions."""
