"""A run folder: what fills it, who owns it, where it stands."""
