"""What runs, read like a recipe: data, warm start, train, sweep, report, and all of them as one pipeline."""
