"""From batches of documents to the count table."""
