"""The networks and what they are made of; ``families/<model_type>.py`` ties each to its Hugging Face form."""
