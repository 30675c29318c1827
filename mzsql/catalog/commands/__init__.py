"""The commands of the catalog, each a pure function from a state to a change of entries, by the kind of object that they are about."""
