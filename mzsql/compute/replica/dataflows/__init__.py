"""A dataflow as it is open on a replica: its inputs, its recursions, its output, and what its nodes cost."""
