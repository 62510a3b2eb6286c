"""Recipes that nobody has to write: new ones from three answers, and those that come with trainwright."""
