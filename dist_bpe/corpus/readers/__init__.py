"""One file a format: how its files become batches of documents."""
