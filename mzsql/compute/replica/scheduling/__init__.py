"""When a dataflow is opened, hydrated, stepped, retried and forgotten, and the threads that do it."""
