"""Users played by a language model, each with its own prompts."""
