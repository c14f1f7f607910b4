"""Understanding of argument lists: the tables of commands, one reader of options, the scripts a command runs."""
