"""The figures: each is drawn from a small frame, which is saved beside it."""
