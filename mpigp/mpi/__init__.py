"""Everything that needs a communicator: distributed rows, collectives, the two rounds, fault tolerance."""
