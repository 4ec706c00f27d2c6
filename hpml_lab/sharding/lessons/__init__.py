"""To be read: ZeRO's formula, its first and third stage, snapshots and a run that needs them, and a training script to copy."""
