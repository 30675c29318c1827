"""The state of dataflows, kept by key: shards, their traces of sorted runs, and looking keys up in them."""
