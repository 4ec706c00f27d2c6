"""The race: which optimizer? (Notebook 06.)

Experiments, in the order of the notebook:
    mnist_three_nets        seven optimizers on the lecture's three nets, at the lecture's rates and at each one's best
    sparse_data             whether adaptive methods win on sparse data, and what a sparse gradient saves
    schedules_vs_adaptive   SGD with a schedule compared with adaptive methods
Further figures of their results:
    race_at_best_rates, race_sweep, race_by_time, race_by_seed   of mnist_three_nets
    sparse_step_costs                              of sparse_data
    schedule_shapes                                the four schedules; needs no result
    SparseStepCost                                 a row of sparse_data: a dense and a sparse step for one vocabulary
    WayToTrain                                     a row of mnist_three_nets: a loop's or the program's time and speed-up
Tools:
    Program                 many trainings of a net as one batched program
    NETS, Setting           the lecture's nets; one optimizer with its hyperparameters
    flat_inputs             the images of a data set as normalized rows
    corpus, zipf_words      bags of words whose frequencies follow Zipf's law
    WordVectors             word vectors with a dense or a sparse gradient
    gradient_bytes          the memory of a gradient
    factor                  a learning-rate schedule by name, as a function of time
    PROTOCOLS               the five comparisons of the exercise `unfair-comparison`
"""

from hpml_lab.core.lazy import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "experiments.mnist_three_nets": ["mnist_three_nets"],
        "experiments.sparse_data": ["sparse_data"],
        "experiments.schedules_vs_adaptive": ["schedules_vs_adaptive", "schedule_shapes"],
        "curves": ["race_at_best_rates", "race_sweep", "race_by_time", "race_by_seed"],
        "sparse_steps": ["sparse_step_costs", "SparseStepCost"],
        "program": ["Program", "NETS", "Setting", "flat_inputs"],
        "speed": ["WayToTrain"],
        "words": ["corpus", "zipf_words", "WordVectors", "gradient_bytes"],
        "hpml_lab.optim.schedules": ["factor"],
        "exercises.unfair_comparison": ["PROTOCOLS"],
    },
)
