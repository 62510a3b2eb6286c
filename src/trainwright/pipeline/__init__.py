"""From a recipe to artefacts, in order: the only place that knows the order."""
