"""From a path to batches of documents."""
