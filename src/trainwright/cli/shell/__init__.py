"""About the program itself: its versions, its commands as data, completion scripts."""
