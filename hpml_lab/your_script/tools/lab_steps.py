"""The steps of a lab on a script of one's own: each changes one thing, and says what the change gains beyond the noise."""

from hpml_lab.core.system.errors import LabError
from hpml_lab.your_script.tools.from_outside import profile_lines, try_everything, try_precision, try_workers
from hpml_lab.your_script.tools.lab_task import LabTask
from hpml_lab.your_script.tools.own_net import learned_scales, split_step
from hpml_lab.your_script.tools.own_roofline import place_under_roof
from hpml_lab.your_script.tools.trainings import (
    change_seeds,
    compare_devices,
    compare_norms,
    compare_optimizers,
    compare_schedules,
    scale_ranks,
    time_parts,
)

TASKS = {
    task.name: task
    for task in (
        LabTask("parts", "Where an epoch's time goes", "What share of an epoch does it wait for batches?", "08", time_parts),
        LabTask("workers", "Workers of the loader", "How many workers gain, and how much?", "08", try_workers),
        LabTask("profile", "Lines in which the time goes", "Which line takes most of the time?", "10", profile_lines),
        LabTask("devices", "CPU and GPU", "How many times as fast is a GPU?", "01", compare_devices),
        LabTask("seeds", "Other seeds", "How much does another seed change the accuracy?", "06", change_seeds),
        LabTask("optimizers", "Five optimizers", "Which learns most, at its own rate?", "06", compare_optimizers),
        LabTask("norms", "Batch norm and dropout", "What does it cost to leave out batch norm?", "03", compare_norms),
        LabTask("scales", "What batch norm has learned", "Which layer has the smallest scales?", "17", learned_scales),
        LabTask("schedules", "Rates over time", "Is a growing batch as good as a falling rate?", "15", compare_schedules),
        LabTask("precision", "Autocast and compilation", "Which of the two is faster here?", "12", try_precision),
        LabTask("ranks", "Several ranks", "How many times the samples per second on 2 ranks?", "13", scale_ranks),
        LabTask("split", "Compute and communication", "What share of a step on 2 ranks is communication?", "13", split_step),
        LabTask("roofline", "The net under the roofline", "What share of the roof does a step reach?", "01", place_under_roof),
        LabTask("tuneup", "The tuning guide's changes", "Which change have you overlooked?", "11", try_everything),
    )
}


def task_called(name: str) -> LabTask:
    """The step of this name. Raises LabError where there is none."""
    if name not in TASKS:
        raise LabError(f"there is no step {name!r}.", f"The steps are {', '.join(TASKS)}.")
    return TASKS[name]
