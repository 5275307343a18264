"""One module per format of chat exports. Each has a `FORMAT`; the registry lists them."""
