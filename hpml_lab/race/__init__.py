"""The race: which optimizer? (Notebook 06.)

Experiments, in the order of the notebook:
    mnist_three_nets        seven optimizers on the lecture's three nets, at the lecture's rates and at each one's best
    sparse_data             whether adaptive methods win on sparse data, and what a sparse gradient saves
    schedules_vs_adaptive   SGD with a schedule compared with adaptive methods
Further figures of their results:
    race_at_best_rates, race_sweep, race_by_seed   of mnist_three_nets
    sparse_step_costs                              of sparse_data
    schedule_shapes                                the four schedules; needs no result
    SparseStepCost                                 a row of sparse_data: a dense and a sparse step for one vocabulary
    Ranking                                        a row of mnist_three_nets: the order of the optimizers on a net
    standings                                      how each optimizer of mnist_three_nets ended on a net, by seed
    WayToTrain                                     a row of mnist_three_nets: a loop's or the program's time and speed-up
Tools:
    Program                 many trainings of a net as one batched program
    NETS, Setting           the lecture's nets; one optimizer with its hyperparameters
    flat_inputs             the images of a data set as normalized rows
    corpus, zipf_words      texts, and a batch of words, whose frequencies follow Zipf's law
    WordVectors             word vectors with a dense or a sparse gradient
    gradient_bytes          the memory of a gradient
    factor                  a learning-rate schedule by name, as a function of time
    PROTOCOLS               the five comparisons of the exercise `unfair-comparison`
"""

from typing import TYPE_CHECKING

from hpml_lab.core.system.lazy import attach

if TYPE_CHECKING:
    from hpml_lab.race.experiments.mnist_three_nets import mnist_three_nets as mnist_three_nets, Ranking as Ranking
    from hpml_lab.race.experiments.mnist_three_nets.setting_records import standings as standings
    from hpml_lab.race.experiments.sparse_data import sparse_data as sparse_data
    from hpml_lab.race.experiments.schedules_vs_adaptive import (
        schedules_vs_adaptive as schedules_vs_adaptive,
        schedule_shapes as schedule_shapes,
    )
    from hpml_lab.race.views.curves import (
        race_at_best_rates as race_at_best_rates,
        race_sweep as race_sweep,
        race_by_seed as race_by_seed,
    )
    from hpml_lab.race.experiments.sparse_data.sparse_steps import (
        sparse_step_costs as sparse_step_costs,
        SparseStepCost as SparseStepCost,
    )
    from hpml_lab.race.tools.program import Program as Program, NETS as NETS, Setting as Setting, flat_inputs as flat_inputs
    from hpml_lab.race.experiments.training_speed import WayToTrain as WayToTrain
    from hpml_lab.race.tools.bags_of_words import corpus as corpus
    from hpml_lab.race.lessons.word_vectors import (
        zipf_words as zipf_words,
        WordVectors as WordVectors,
        gradient_bytes as gradient_bytes,
    )
    from hpml_lab.optim.schedules import factor as factor
    from hpml_lab.race.exercises.unfair_comparison import PROTOCOLS as PROTOCOLS
else:
    __getattr__, __dir__, __all__ = attach(__name__, __file__)
