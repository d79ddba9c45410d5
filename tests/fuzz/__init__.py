"""Damaged and hostile files, made by seeded mutations of good ones, and what the commands make of them."""
