"""Running a statement: DuckDB in this process, Spark's session, its jobs, and relations on their way between the two."""
