"""The pages; each module registers its own when it is imported."""
