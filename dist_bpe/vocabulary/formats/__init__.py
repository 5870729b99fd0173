"""One file a format: how a vocabulary is written, read, and opened in its own library."""
