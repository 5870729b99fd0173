"""From the count table to merges."""
