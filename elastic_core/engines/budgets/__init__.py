"""The budgets of `separate`, kept inside vLLM: `processor.Progress.update` enforces t and s; `v1` and `v2` call it from
the logits processors of vLLM's two model runners."""
