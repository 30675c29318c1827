"""Answering a query at one time: from constants, from rows read, from an index, by an engine; and its rows on their way out."""
