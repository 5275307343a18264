"""The pages of the dashboard, registered on import."""
