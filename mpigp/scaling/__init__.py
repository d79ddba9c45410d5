"""Scaling studies: evaluations timed on several numbers of ranks, a model of their time, and a page that shows both."""
