"""The small base model that ships with the package: its tokenizer, its play data, its training."""
