"""Sections that say which weights are trained, and which ones a training gives."""
