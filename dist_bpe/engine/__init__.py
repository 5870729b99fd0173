"""Who does which task, where, and how often."""
