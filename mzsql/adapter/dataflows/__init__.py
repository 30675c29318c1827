"""The dataflows that this process runs while it leads the environment, or prepares for a deployment."""
