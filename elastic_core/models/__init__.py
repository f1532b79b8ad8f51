"""Models on a disk: their files, tokens, checks and twins."""
