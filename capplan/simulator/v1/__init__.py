"""vLLM V1's scheduler with what an engine has: one schedule, capabilities beside it."""
