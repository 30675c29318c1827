"""Statements to plans: `plan` has the table of what plans which statement, `plans` what comes out; one file a family, as in `parse`."""
