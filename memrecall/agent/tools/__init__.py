"""Tools: argument and result models, handlers, and the table that all interfaces render."""
