"""The texts of definitions: normalized for the catalog, rewritten after a rename, formatted for SHOW CREATE."""
