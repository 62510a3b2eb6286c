"""What was measured, by us and by others, against what is predicted."""
