"""The budgets of `separate`, kept inside vLLM by a logits processor."""
