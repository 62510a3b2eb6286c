"""The model that a training begins with: what a recipe takes from it, and whether it fits."""
