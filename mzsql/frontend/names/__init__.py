"""What a name means: objects of the catalog, types, columns in scope. Nothing here plans an expression or a query."""
