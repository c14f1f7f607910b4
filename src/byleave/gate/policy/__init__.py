"""Rules of organisation, device, user and project, and the grants people give; pure."""
