"""What the benchmarks share: problems, runs, the machine and its rates, a comparison, tables and files."""
