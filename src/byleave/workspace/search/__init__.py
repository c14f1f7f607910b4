"""search_files: ripgrep in a sandbox, or a search of our own where there is none."""
