"""The experiments of notebook 22, one module or folder each.

Next to them, what several of them use:
    cached_step  one step of a decoder behind a cache that is filled, to be timed
"""
