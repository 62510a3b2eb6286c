"""Images with their classes: files to pixels, pixels to a square of bytes, classes cut by shares into splits."""
