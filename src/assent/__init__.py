"""Assent lets AI agents act on a user's own machine, with the user's assent."""
