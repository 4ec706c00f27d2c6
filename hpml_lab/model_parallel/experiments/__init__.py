"""The experiments of notebook 23, one module or folder each.

Next to them, what several of them use:
    one_process  how far a rank's numbers are from those of one process
"""
