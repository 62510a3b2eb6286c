"""Ground that everything stands on: errors, units, configuration, registry, fingerprints. No torch."""
