"""What a trainer does once something has gone wrong: loaded then, and by no training in which nothing does."""
