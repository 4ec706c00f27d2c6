"""For your own races: many trainings as one batched program, and bags of words whose frequencies follow Zipf's law."""
