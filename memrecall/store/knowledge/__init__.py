"""Knowledge entries: memories that belong to an agent."""
