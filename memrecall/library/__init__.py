"""One opened database: store, embedder, search, vectors and graphs."""
