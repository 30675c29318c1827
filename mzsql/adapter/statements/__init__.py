"""What statements do: objects made and dropped, rows written and copied, cursors, transactions."""
