"""The experiments of notebook 14, one module or folder each.

Next to them, what several of them use:
    quiet_deepspeed  DeepSpeed on ranks that end soon
"""
