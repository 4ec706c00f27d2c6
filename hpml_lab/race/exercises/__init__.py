"""The exercises of notebook 06, one per file."""

from hpml_lab.race.exercises import cost_of_a_sparse_step, unfair_comparison, warm_up_and_cosine, winner_by_seeds

__all__ = ["cost_of_a_sparse_step", "unfair_comparison", "warm_up_and_cosine", "winner_by_seeds"]
