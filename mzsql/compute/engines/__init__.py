"""Running statements: DuckDB in this process, Spark's sessions and jobs, and relations for both."""
