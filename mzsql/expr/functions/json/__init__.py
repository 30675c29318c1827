"""jsonb."""
