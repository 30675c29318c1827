"""Dates, times of day, timestamps, intervals, time zones."""
