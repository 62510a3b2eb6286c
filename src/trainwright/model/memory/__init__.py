"""Where a network keeps what training needs between its uses; loaded where a recipe asks for it."""
