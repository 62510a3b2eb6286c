"""Time: of phases and laps, of compilation, and how much of it is left."""
