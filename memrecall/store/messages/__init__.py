"""Messages and the order they were said in."""
