"""What a Hugging Face configuration of each family means as a shape: pure mappings, no module is built."""
