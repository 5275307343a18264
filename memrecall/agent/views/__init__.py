"""A recall as data for people, and as HTML for notebooks."""
