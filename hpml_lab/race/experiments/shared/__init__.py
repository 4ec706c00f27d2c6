"""What several experiments use: checkpoints of long trainings, and the times of three ways to train."""
