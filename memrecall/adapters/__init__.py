"""Other places to keep what memrecall keeps; each needs an extra and loads when it is named."""
