"""From a session's statement to a plan and a timestamp."""
