"""Update rules that a recipe asks for by a key; loaded where it does."""
