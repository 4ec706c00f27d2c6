"""The experiments of notebook 18, one module each.

Next to them, what several of them use:
    tanh_networks  small nets of many seeds, trained as one batched program
"""
