"""What stages hand to each other: directories with a manifest, token shards, events. No torch."""
