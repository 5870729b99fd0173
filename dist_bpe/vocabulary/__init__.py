"""From merges to files and back, and the vocabulary in use."""
