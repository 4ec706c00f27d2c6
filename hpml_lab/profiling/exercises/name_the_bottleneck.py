"""Exercise: the bottleneck of a profile is the part that is near its own limit, while the others wait for it."""

from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.expect import expect_keys
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.profiling.lessons.bottleneck import BOUNDS

# The main thread's seconds by line, the GPU's seconds by kind, and how busy the parts of the machine were, in %.
_COLUMNS = (
    "main: next(batches), s",
    "main: own Python, s",
    "main: .to(device), s",
    "main: launching kernels, s",
    "main: loss.item(), s",
    "main: waiting at a lock, s",
    "GPU: kernels, s",
    "GPU: copies from host, s",
    "GPU: arithmetic, % of peak",
    "GPU: memory, % of peak",
    "8 cores, % busy",
    "busiest core, % busy",
    "disk, % busy",
)
_FIGURES = {
    "A": (0.2, 0.1, 0.3, 0.9, 8.5, 0.0, 9.5, 0.3, 78, 31, 16, 32, 4),
    "B": (7.6, 0.2, 0.3, 1.5, 0.4, 0.0, 2.1, 0.3, 15, 9, 6, 14, 98),
    "C": (0.3, 0.1, 6.3, 1.2, 2.1, 0.0, 2.9, 6.1, 14, 11, 14, 28, 6),
    "D": (0.1, 8.2, 0.2, 1.2, 0.3, 0.0, 1.4, 0.2, 9, 6, 13, 99, 3),
    "E": (0.1, 0.8, 0.2, 1.1, 0.4, 7.4, 1.3, 0.2, 8, 6, 11, 19, 2),
    "F": (0.2, 0.1, 0.3, 0.8, 8.6, 0.0, 9.6, 0.3, 6, 94, 15, 30, 4),
}
_BOUND = dict(zip(_FIGURES, ("GPU compute", "input", "transfer", "single thread", "lock", "GPU memory"), strict=True))

PROFILES = {letter: (dict(zip(_COLUMNS, figures, strict=True)), _BOUND[letter]) for letter, figures in _FIGURES.items()}


def profile_table() -> list[dict[str, object]]:
    """One row for each figure, one column for each profile."""
    return [{"figure": name, **{letter: figures[name] for letter, (figures, _) in PROFILES.items()}} for name in _COLUMNS]


_WAIT = ("waiting-is-not-work", "How busy are the cores? A thread that waits takes time, but no processor.")
_IDLE = ("idle-gpu", "The GPU's kernels fill a small part of the ten seconds: it cannot be what all wait for.")
_INPUT = ("blames-the-input", "The loop hardly waits for its next batch. Which row is the largest?")
_LINE = ("blames-the-wait", "Python stands in loss.item(), but what does the GPU do meanwhile?")
_WHY = {
    **{("A", wrong): _LINE for wrong in ("CPU", "lock", "single thread", "transfer")},
    ("A", "GPU memory"): ("arithmetic-is-full", "Compare the two shares of the GPU's peak: arithmetic and memory."),
    ("B", "CPU"): _WAIT,
    **{(letter, "CPU"): _WAIT for letter in "CE"},
    ("C", "GPU compute"): ("copies-are-not-kernels", "Look at which rows make up the GPU's time: kernels or copies?"),
    ("C", "GPU memory"): ("copies-are-not-kernels", "Copies over the bus are no traffic of kernels in the GPU's own memory."),
    ("D", "CPU"): ("one-core-is-not-all", "Compare the busiest core with all eight: most of the processor is idle."),
    ("E", "single thread"): ("waiting-is-not-work", "No single core is busy. A thread that waits does not keep a core busy."),
    **{(letter, wrong): _IDLE for letter in "BDE" for wrong in ("GPU compute", "GPU memory")},
    **{(letter, "input"): _INPUT for letter in "ACDEF"},
    **{("F", wrong): _LINE for wrong in ("CPU", "lock", "single thread", "transfer")},
    ("F", "GPU compute"): ("memory-is-full", "Compare the two shares of the GPU's peak: arithmetic and memory."),
}
# The row that shows each bound, if it is one.
_ROWS = {
    "input": "main: next(batches), s",
    "CPU": "8 cores, % busy",
    "transfer": "main: .to(device), s",
    "GPU compute": "GPU: arithmetic, % of peak",
    "GPU memory": "GPU: memory, % of peak",
    "lock": "main: waiting at a lock, s",
    "single thread": "busiest core, % busy",
}
_NAMES = {name.casefold(): name for name in BOUNDS}


@exercise("name-the-bottleneck", notebook="10_profiling", returns={str: str})
def judge_name_the_bottleneck(answer: dict[str, str]) -> None:
    """The bound of each profile, by its name."""
    given_names = [" ".join(name.casefold().split()) for name in expect_keys(answer, PROFILES).values()]
    if len(set(given_names)) == 1 and given_names[0] in _NAMES:
        raise Mistake("same-name-for-all", f"All six are {_NAMES[given_names[0]]!r}. Each name is used at most once.")
    for (letter, (figures, right)), given in zip(PROFILES.items(), given_names, strict=True):
        given = _NAMES.get(given)
        if given is None:
            raise Mistake("unknown-name", f"{answer[letter]!r} for {letter} is none of the names: {', '.join(BOUNDS)}.")
        if given == right:
            continue
        row = _ROWS[given]
        small = f"{given!r} would show in the row {row!r}, and that is only {figures[row]:g}."
        name, hint = _WHY.get((letter, given), ("row-is-small", small))
        raise Mistake(name, f"Profile {letter}: {hint}")
