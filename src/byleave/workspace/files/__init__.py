"""read_file, write_file and list_directory on the real file system."""
