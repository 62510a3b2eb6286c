"""Which files a corpus consists of, and the documents in them."""
