"""One file for each section of a recipe, named after the section."""
