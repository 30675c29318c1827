"""mzsql's Consensus and timestamp oracle on PostgreSQL and CockroachDB: ``postgres://user@host/database?schema=…``."""
