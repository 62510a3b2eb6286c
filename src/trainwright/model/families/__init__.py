"""One file per Hugging Face ``model_type``: configuration and weight names, both ways. The file name is the registry."""
