"""A fitted model as a page for people, and as pictures."""
