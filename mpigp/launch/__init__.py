"""Starting ranks: mpiexec, Slurm batch scripts, standard streams, injected faults."""
