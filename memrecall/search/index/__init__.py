"""The columnar index of one user's rows."""
