"""To be read: a Dataset of files, one with a slow stage, decoders, DALI's pipelines, and boxes that move along."""
