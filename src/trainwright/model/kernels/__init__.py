"""What computes as a recipe asks and no other does: attention that is told what tokens see, graphs; and refusals."""
