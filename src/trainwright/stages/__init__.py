"""What carries a recipe out: one folder each, `run(recipe, inputs, out, events)`; siblings share formats only."""
