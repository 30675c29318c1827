"""Group commit: the writes of many sessions and tables in one compare-and-append, and the locks of statements that read
before they write.
"""
