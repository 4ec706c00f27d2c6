"""The experiments of notebook 11, one module each.

Next to them, what several of them use:
    tuned_networks  networks, batches and an optimizer
    turns           comparisons whose states take turns, each in a context or a process of its own
"""
