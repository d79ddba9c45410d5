"""Data files: HDF5 and tables in, synthetic data, rows streamed from disk."""
