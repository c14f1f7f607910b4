"""search_files: ripgrep in a sandbox, or our own search (`scan`) if that does not work."""
