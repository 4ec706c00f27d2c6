"""The experiments of notebook 12, one module each.

Next to them, what several of them use:
    underflow  histograms of small gradients, and the share that fp16 makes zero
"""
