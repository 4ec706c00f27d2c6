"""How long a student waits: the seconds of each experiment at quick, and of each topic, as stored cards of the notebooks say.

The cards are read and nothing is run, so a busy machine fails no test. `make outputs` stores them on a quiet one.
"""

import re
from collections import defaultdict
from dataclasses import dataclass

import nbformat
import pytest

from hpml_lab.core.experiment.registry import all_experiments, find
from hpml_lab.core.system.paths import NOTEBOOKS

# A cell that takes longer is one to leave, and a topic is what a contributor runs after each change: its notebook is a good
# part of that. A full run is as long as it needs.
EXPERIMENT_SECONDS, TOPIC_SECONDS = 18.0, 70.0
# Of experiments, and of a topic. A ladder times and checks a dozen changes one after another; a shorter one would measure less
# than it says. A detector that sees fewer or smaller patients finds less than its claim says.
LONGER_SECONDS = {
    "debug-apis": 20.0,  # each sample puts a tool on and takes it off again
    "disk-iops": 20.0,  # each figure of fio's is a program that starts
    "inference-pipeline": 22.0,  # nine spans of traffic, a second each
    "lung-nodule-pipeline": 50.0,  # as on the slower of two processors
    "nodule-detector": 20.0,
    "profile-loop": 20.0,
    "profiling": 80.0,  # with tune-up
    "tune-up": 36.0,  # a dozen copies of a script, each of which imports torch
    "tuning": 85.0,  # 13 experiments
}

LAST_LINE = re.compile(r"<p><small>quick on [^<]*, seed \d+, (\d+\.\d) s, [^<]*</small></p>\s*$")
FIX = "Make the work smaller (fewer samples or steps, smaller images; not fewer turns), then `make outputs ARGS={path}`."


@dataclass(frozen=True)
class StoredCard:
    """An experiment as its notebook shows it; `seconds` is None where the card does not say how long a run at quick took."""

    topic: str
    slug: str
    path: str
    seconds: float | None


def seconds_of(card):
    """The seconds of a run at quick, by the last line of its card; None where that is another one."""
    found = LAST_LINE.search(card)
    return float(found[1]) if found else None


def stored_cards():
    """The cards of all experiments, in the order of the notebooks; one that is not stored has no seconds."""
    experiments, cards = {row.slug: row for row in all_experiments()}, []
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        for cell in nbformat.read(path, as_version=4).cells:
            for data in (output.get("data", {}) for output in cell.get("outputs", [])):
                row = experiments.get(data.get("text/plain", "").partition("\n")[0])
                if row is not None and "text/html" in data:
                    cards.append(StoredCard(row.topic, row.slug, f"notebooks/{path.name}", seconds_of(data["text/html"])))
    absent = experiments.keys() - {card.slug for card in cards}
    rows = (experiments[slug] for slug in sorted(absent))
    return [*cards, *(StoredCard(row.topic, row.slug, f"notebooks/{row.notebook}.ipynb", None) for row in rows)]


def without_seconds(cards):
    """A sentence for each card that says no seconds."""
    return [
        f"{card.slug}: {card.path} stores no card of a run at quick that ends in its seconds. `make outputs ARGS={card.path}`."
        for card in cards
        if card.seconds is None
    ]


def too_long(cards):
    """A sentence for each experiment, and for each topic, that takes longer than it may."""
    found, by_topic = [], defaultdict(list)
    for card in cards:
        limit = LONGER_SECONDS.get(card.slug, EXPERIMENT_SECONDS)
        by_topic[card.topic].append(card)
        if (card.seconds or 0.0) > limit:
            found.append(f"{card.slug} took {card.seconds:.1f} s and may take {limit:g} s. {FIX.format(path=card.path)}")
    for topic, its in by_topic.items():
        most = LONGER_SECONDS.get(topic, TOPIC_SECONDS)
        total = sum(card.seconds or 0.0 for card in its)
        if total > most:
            longest = max(its, key=lambda card: card.seconds or 0.0)
            found.append(
                f"The experiments of {topic} took {total:.1f} s together and may take {most:g} s, the longest is "
                f"{longest.slug}. {FIX.format(path=longest.path)}"
            )
    return found


@pytest.fixture(scope="module")
def cards():
    return stored_cards()


def test_each_experiment_is_stored_with_its_seconds(cards):
    found = without_seconds(cards)
    assert not found, "\n".join(found)


def test_no_experiment_and_no_topic_takes_longer_than_it_may(cards):
    found = too_long(cards)
    assert not found, "\n".join(found)


def test_the_seconds_are_those_of_this_run_and_not_of_the_recorded_one():
    result = find("tensor-basics")("quick", device="cpu")
    result.seconds = 12.345
    assert seconds_of(result.html()) == 12.3
    result.notes.append("The reference is a recorded run: quick on cpu, seed 0, 99.0 s, 2026-01-01.")
    assert seconds_of(result.html()) == 12.3
    result.size = "full"
    assert seconds_of(result.html()) is None, "a run at full says nothing about quick"


def test_a_sentence_says_what_is_too_long_and_what_to_do():
    path = "notebooks/19_capstone.ipynb"
    slow, allowed = StoredCard("capstone", "other", path, 22.1), StoredCard("capstone", "lung-nodule-pipeline", path, 40.0)
    assert too_long([allowed]) == [] and without_seconds([allowed]) == []
    [found] = too_long([slow, allowed])
    assert found.startswith("other took 22.1 s and may take 18 s. Make the work smaller")
    assert found.endswith("then `make outputs ARGS=notebooks/19_capstone.ipynb`.")
    together = too_long([StoredCard("nets", f"slug-{i}", path, 12.1) for i in range(10)])
    assert len(together) == 1 and together[0].startswith("The experiments of nets took 121.0 s together and may take 70 s")
    [absent] = without_seconds([StoredCard("capstone", "other", path, None)])
    assert absent.startswith("other: notebooks/19_capstone.ipynb stores no card")
