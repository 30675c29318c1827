"""Contents at one time: one-shot queries, and the stages of a hydration."""
