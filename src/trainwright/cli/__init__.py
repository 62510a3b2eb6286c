"""The command line: one file per command, parsing and printing only, each imported when it is called."""
