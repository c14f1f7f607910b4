"""Text for people and records: calls in words, characters made visible, secrets masked."""
