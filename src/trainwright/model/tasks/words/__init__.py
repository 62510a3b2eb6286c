"""Tasks of words: classes of each of them, and the entities that their labels name."""
