"""Several LLMs on shared nodes."""
