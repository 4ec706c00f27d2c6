"""For trainings of one's own: the parts of a step on several ranks, and the alpha-beta model up to thousands of GPUs."""
