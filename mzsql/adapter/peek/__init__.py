"""A session's queries: choosing a timestamp, holding the inputs readable, finding the plan, returning the rows, or printing the plan."""
