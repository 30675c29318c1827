"""Filling a dataflow's arrangements and output from nothing at one time, on Spark or in this process."""
