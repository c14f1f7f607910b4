"""Undo: records what calls change, and restores it."""
