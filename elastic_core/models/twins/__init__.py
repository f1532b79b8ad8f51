"""Twins: models that look like those people train (architecture, vocabulary, special tokens, chat template), small
enough for a CPU, with random weights. `elastic rehearse` runs a preset with them."""
