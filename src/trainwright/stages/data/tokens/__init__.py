"""From text to token ids: the tokenizer, what encodes with it, the shards."""
