"""The experiments of notebook 08, one module each.

Next to them, what several of them use:
    slow_clips  clips on disk behind a model of slow storage
"""
