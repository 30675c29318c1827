"""Steps: from updates of the inputs to updates of the output and of the state."""
