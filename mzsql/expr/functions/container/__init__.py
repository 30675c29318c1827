"""Arrays, lists, maps, records and ranges."""
