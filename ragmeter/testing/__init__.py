"""What tests, soak runs and trials without a real model stand on: the world-truth LLM, and a server that misbehaves."""
