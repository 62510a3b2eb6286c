"""From a question to a plan: defaults, the chosen layout, the estimate and what it rests on."""
