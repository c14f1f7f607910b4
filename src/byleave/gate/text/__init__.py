"""Text for people and records: calls described, hidden characters escaped, secrets masked."""
