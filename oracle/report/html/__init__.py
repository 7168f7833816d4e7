"""A verdict as one HTML file that needs nothing beside it."""
