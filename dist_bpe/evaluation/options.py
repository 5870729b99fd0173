"""The options of measuring and balancing."""
