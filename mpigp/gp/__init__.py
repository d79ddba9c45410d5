"""The mathematics of the two models: pure functions on arrays, without MPI, files or printing."""
