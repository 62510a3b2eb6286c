"""One file per Hugging Face ``model_type``: configuration and weight names, both ways; file names are the registry."""
