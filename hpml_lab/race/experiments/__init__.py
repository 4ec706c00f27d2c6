"""The experiments of notebook 06, one per file.

Next to them, what several of them use:
    checkpoints     checkpoints of long trainings, removed at the end
    training_speed  the lecture's loop and the batched program: three ways to train, and their times
"""
