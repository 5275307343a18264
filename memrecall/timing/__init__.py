"""Deadlines of requests, and work that several requests share."""
