"""Why a claim may not have held: what it depends on, how it was run, and whether it held in the recorded run."""

from hpml_lab.core.experiment import Claim, Result

FEW_CORES = 2


def reasons(result: Result, claim: Claim) -> list[str]:
    """Possible reasons why `claim`, one of the result's, did not hold: the nearest first."""
    if claim.exact:
        return [
            "An exact claim holds on every machine: this installation or the workbook is wrong. Start with `hpml-lab doctor`."
        ]
    found = [f"It depends on {claim.depends_on}."]
    if "within noise" in claim.measured:
        found.append("The difference is within the noise of this run: nothing can be said from it, in either direction.")
    if claim.measured.endswith("less than 2 %"):
        found.append("The difference is real and too small to matter: a speed-up is claimed from 2 % on.")
    if claim.depends_on == "the machine":
        found += _of_the_machine(result)
    recorded = _recorded(result, claim)
    if recorded:
        found.append(recorded)
    if result.size == "quick":
        found.append(f"This run was quick: small sizes, few repetitions. Try `hpml-lab run {result.slug} --size full`.")
    return found


def _of_the_machine(result: Result) -> list[str]:
    found = []
    if "cuda" in result.experiment.uses and not str(result.device).startswith("cuda"):
        found.append("It ran on a processor, and the experiment shows more on a GPU.")
    if result.machine["cores"] <= FEW_CORES and not result.machine["gpu"]:
        found.append(f"With {result.machine['cores']} cores, other programs and the measured one compete for them.")
    return found


def _recorded(result: Result, claim: Claim) -> str:
    """What the recorded run says about the same claim; "" if there is none, or it does not make it."""
    reference = result.reference()
    same = next((other for other in reference.claims if other.text == claim.text), None) if reference else None
    if same is None:
        return ""
    where = f"{reference.ran_on}, {reference.size}"
    figure = f": {same.measured}" if same.measured else ""
    return f"In the recorded run ({where}) it {'holds' if same.holds else 'does not hold either'}{figure}."
