"""DeepSpeed's own range test and one-cycle, as a JSON asks for them: the rate of step t, counted from 0.

"scheduler": {"type": "LRRangeTest", "params": {"lr_range_test_min_lr": 1e-4, "lr_range_test_step_size": 100, …}}
"scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 0.01, "cycle_max_lr": 0.1, "cycle_first_step_size": 30, …}}
"""


def range_test_rate(t: int, low: float, step_size: int, step_rate: float) -> float:
    """LRRangeTest: a straight line from `low`, which climbs by step_rate · low in each step_size steps.

    rate = low · (1 + step_rate · t / step_size)
    """
    return low * (1 + step_rate * t / step_size)


def one_cycle_rate(t: int, low: float, high: float, up: int, down: int) -> float:
    """OneCycle: a straight line up to `high` in `up` steps, one down in `down` steps, and then `low`, if no decay is asked for.

    rate = low + (high − low) · share of the climb, or of the descent that is left
    """
    share = t / up if t <= up else max(0.0, (up + down - t) / down)
    return low + (high - low) * share
