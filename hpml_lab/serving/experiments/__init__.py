"""The experiments of notebook 20, a folder each.

Next to them, what several of them use:
    slice_stages  inference on one CT slice: preprocess, detector and segmenter, postprocess
"""
