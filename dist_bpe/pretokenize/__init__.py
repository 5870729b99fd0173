"""How a text is cut into words."""
