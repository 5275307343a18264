"""Recalls of users: their traces, listed over users, and feedback on them."""
