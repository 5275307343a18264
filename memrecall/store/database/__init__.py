"""Database engines, dialects, migrations, locks and faults."""
