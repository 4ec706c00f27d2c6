"""The experiments of notebook 15, one module each.

Next to them, what several of them use:
    accuracy_gains     accuracies by seed: in words, and compared seed by seed
    batched_trainings  one small net trained from several seeds at once, as one batched program
"""
