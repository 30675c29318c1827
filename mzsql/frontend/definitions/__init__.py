"""The texts of definitions: normalized as the catalog keeps them, written anew after a rename, shown as SHOW CREATE prints them."""
