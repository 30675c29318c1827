"""The builtin relations as data: one `.sql` file a relation, a folder a schema."""
