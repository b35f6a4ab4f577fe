"""The protocol of an evaluation: everything besides the agent's weights that its score depends on."""
