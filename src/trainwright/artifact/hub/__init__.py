"""Models by their name on Hugging Face's hub: ``hf://OWNER/NAME``, kept in the cache of its own library."""
