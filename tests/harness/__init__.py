"""What several test folders share: real parts, wired for a test."""
