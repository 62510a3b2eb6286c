"""Where a training keeps what it needs between updates; loaded where a recipe asks for it."""
