"""The lecture's arithmetic on its own figures: 3 minutes of preprocessing and 1 minute of network for an image."""

from fractions import Fraction

from hpml_lab.capstone import overlap_arithmetic as arithmetic

INFERENCE = {"preprocessing": 3, "network": 1}  # minutes an image
TRAINING = {"preprocessing": 3, "forward": 1, "backward": 3}  # as the garbled line of the slide can be read
STAGES = (Fraction(18, 100), Fraction(5, 100), Fraction(1, 100))  # seconds: preprocess, network, postprocess
IMAGES = 50


def sequence_is_the_lectures() -> bool:
    """3' + 1' = 4'; the GPU works for a quarter of it, and one thread of the CPU for three quarters."""
    minutes = arithmetic.sequential_time(list(INFERENCE.values()))
    shares = {name: Fraction(part, minutes) for name, part in INFERENCE.items()}
    return minutes == 4 and shares == {"preprocessing": Fraction(3, 4), "network": Fraction(1, 4)}


def overlap_gives_three() -> bool:
    """max(3', 1') = 3' for each further image, 4/3 times as fast; a network that takes no time would not change it."""
    item = arithmetic.time_per_item(INFERENCE)
    return item == 3 == arithmetic.time_per_item(INFERENCE | {"network": 0}) and Fraction(4, item) == Fraction(4, 3)


def three_workers_balance(images: int = 120) -> bool:
    """max(3'/k, 1') for each further image: by the formula, and by the schedule of many images."""
    for workers in range(1, 7):
        item = arithmetic.time_per_item(INFERENCE, {"preprocessing": workers})
        ends = [
            arithmetic.finished(arithmetic.schedule([tuple(INFERENCE.values())] * count, (workers, 1)))
            for count in (images, 2 * images)
        ]
        if item != max(Fraction(3, workers), 1) or Fraction(ends[1] - ends[0], images) != item:
            return False
    return arithmetic.workers_that_balance(INFERENCE, "preprocessing") == 3


def more_gpus_gain_nothing() -> bool:
    """Two GPUs for one halve the network's minute: 3.5' in sequence, still 3' overlapped; they pay from six workers on."""
    item = arithmetic.time_per_item
    halved = INFERENCE | {"network": Fraction(1, 2)}
    return (
        arithmetic.sequential_time(list(halved.values())) == Fraction(7, 2)
        and item(halved) == item(INFERENCE) == item(INFERENCE, {"network": 2}) == 3
        and item(INFERENCE, {"preprocessing": 3, "network": 2}) == 1
        and item(INFERENCE, {"preprocessing": 6, "network": 2}) == Fraction(1, 2)
        and arithmetic.workers_that_balance(halved, "preprocessing") == 6
    )


def training_takes_seven() -> bool:
    """3' + 1' + 3' = 7' in sequence; with the next image prepared ahead max(3', 1' + 3') = 4'."""
    preprocessing, *network = TRAINING.values()
    return (
        arithmetic.sequential_time(list(TRAINING.values())) == 7
        and arithmetic.time_per_item({"preprocessing": preprocessing, "network": sum(network)}) == 4
    )


def pipeline_of_fifty() -> tuple[Fraction, Fraction]:
    """Seconds of 50 images of .18, .05 and .01 s: in sequence, and overlapped by (n − 1) · max + sum."""
    return arithmetic.sequential_time(STAGES, IMAGES), arithmetic.overlapped_time(STAGES, IMAGES)


def schedules_agree() -> bool:
    """(n − 1) · max + sum is the end of the schedule, whatever the order of the stages and the number of images."""
    chains = ((3, 1), (1, 3), STAGES, STAGES[::-1], (2, 5, 2, 5), (4,), (0, 7, 1))
    return all(
        arithmetic.finished(arithmetic.schedule([chain] * count)) == arithmetic.overlapped_time(chain, count)
        for chain in chains
        for count in (1, 2, 7, IMAGES)
    )
