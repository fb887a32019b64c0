"""Who starts workers: nobody (this process is the only one), this machine, Slurm or Ray."""
