"""Which casts there are between plain types, and in which contexts: `casts` has the table, `declared` all of them by key."""
