"""SUBSCRIBE: a query's contents at one time, then every change of them."""
