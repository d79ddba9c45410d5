"""Speed of one evaluation: against the limit of the machine, against the peers, and over ranks."""
