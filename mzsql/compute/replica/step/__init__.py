"""One step of a dataflow: the updates it takes, the text it runs and over which relations, and what comes out."""
