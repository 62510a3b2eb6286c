"""What carries a recipe out: one folder each, `run(context)`; siblings share formats only."""
