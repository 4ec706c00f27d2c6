"""The experiments of notebook 22, one module or folder each.

Next to them, what several of them use:
    cached_step  one step of a decoder behind a cache, to be timed, and the scores of tokens that are read one by one
"""
