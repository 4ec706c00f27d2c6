"""Exact claims hold on every processor: each experiment at quick on those that this one can pretend to be.

The kinds share one folder of compiled kernels, as nodes share a home: no kernel of another kind may be found in it. Each kind
is a group of its own for the workers (`APART` in plan.py), so the folder belongs to the run. As this processor is, every other
test runs; here it runs only what compiles kernels.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hpml_lab.core.experiment.registry import all_experiments

KINDS = {
    "sse": {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_ENABLE_INSTRUCTIONS": "SSE4_2"},
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"},
    "not Intel": {"MKL_CBWR": "COMPATIBLE", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE", "OPENBLAS_CORETYPE": "Zen"},
    "three threads": {"OMP_NUM_THREADS": "3"},
    "here": {},
}
# On lines of their own, so that what an experiment prints besides does not matter.
CHILD = """
import json, sys
from hpml_lab.core.experiment.registry import find

if __name__ == "__main__":
    for slug in sys.argv[1:]:
        try:
            result = find(slug)("quick")
            wrong = [claim.text for claim in [*result.claims, *result.checks] if claim.exact and not claim.holds]
        except Exception as error:
            wrong = [f"{type(error).__name__}: {error}"]
        print("\\n@" + json.dumps([slug, wrong]), flush=True)
"""


def failures(kind, slugs, folder):
    """{slug: what failed} of the experiments that ran on a processor of this kind, and the slugs that did not."""
    script = folder / "run.py"  # a file: children that start anew import the main module
    script.write_text(CHILD, encoding="utf-8")
    kernels = str(Path(os.environ["HPML_TEST_RUN"]) / "kernels-of-all-processors")
    env = {**os.environ, "OMP_NUM_THREADS": "1", "HPML_DEVICE": "cpu", "TORCHINDUCTOR_CACHE_DIR": kernels, **KINDS[kind]}
    done = subprocess.run(
        [sys.executable, script, *slugs], env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    ran = dict(json.loads(line[1:]) for line in done.stdout.splitlines() if line.startswith("@"))
    return {slug: wrong for slug, wrong in ran.items() if wrong}, set(slugs) - set(ran)


@pytest.mark.nightly("every experiment, on each kind of processor")
@pytest.mark.parametrize("kind", KINDS)
def test_every_exact_claim_holds(kind, tmp_path):
    slugs = [row.slug for row in all_experiments() if kind != "here" or "compiler" in row.uses]
    assert slugs and failures(kind, slugs, tmp_path) == ({}, set())


@pytest.mark.nightly("the test above can fail")
@pytest.mark.parametrize("kind", ["sse"])
def test_an_older_processor_is_pretended_and_a_wrong_row_is_seen(kind, tmp_path):
    assert failures(kind, ["chain-rule", "no-such-row"], tmp_path)[0].keys() == {"no-such-row"}
