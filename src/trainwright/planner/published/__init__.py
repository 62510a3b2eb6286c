"""Published measurements: reads them, predicts each, and says how far off the planner is."""
