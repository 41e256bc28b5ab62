"""What runs rounds: the round loop, cohorts, memories, run directories and checkpoints."""
