"""Runs Slackwater's queries with the means of others: Ray so far (`python -m slackwater.ray`)."""

__version__ = "0.1.0"
