"""What a recipe is carried out with: one folder each, `run(recipe, inputs, out, events)`; siblings share formats only."""
