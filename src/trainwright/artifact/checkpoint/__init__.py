"""Checkpoints on disk (docs/formats/checkpoint.md): written piece by piece, read in any layout, all without torch."""
