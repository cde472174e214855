"""LLM architectures: weights, KV bytes per token and arithmetic."""
