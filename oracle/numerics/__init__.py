"""Whether the values are right: what a conforming store may write, and who writes it."""
