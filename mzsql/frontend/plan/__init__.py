"""Statements to plans: `plan` has the table of planners, `plans` the plan structs; one file for each family of
statements, as in `parse`.
"""
