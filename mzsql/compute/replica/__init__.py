"""One replica: it hydrates and steps dataflows, keeps their state in arrangements, and writes their outputs."""
