"""What steps and contents share: the walk over a plan, row-wise work, groups, windows, and the names of a dataflow's state."""
