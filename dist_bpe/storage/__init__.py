"""Where bytes lie, and how they get there whole."""
