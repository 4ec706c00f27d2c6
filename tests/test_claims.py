"""An exact claim reads the same on every machine, so that a notebook's stored output holds with a GPU and without one."""

import ast
import textwrap
from collections.abc import Iterator

import pytest

from hpml_lab.core.system.paths import ROOT

SOURCES = sorted((ROOT / "hpml_lab").glob("*/**/*.py"))


def depends_on_cuda(tree: ast.AST, names: set[str]) -> bool:
    """Whether an expression asks for CUDA, or reads one of `names`, which were assigned from such an expression."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in ("is_cuda", "is_available", "device_count"):
            return True
        if (isinstance(node, ast.Constant) and node.value == "cuda") or (isinstance(node, ast.Name) and node.id in names):
            return True
    return False


def assigned_from_cuda(function: ast.FunctionDef) -> set[str]:
    """The names of yes or no, and of texts, that a function assigns from an expression which asks for CUDA."""
    names: set[str] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.IfExp | ast.Compare | ast.Attribute | ast.BoolOp):
            if depends_on_cuda(node.value, names):
                names |= {each.id for target in node.targets for each in ast.walk(target) if isinstance(each, ast.Name)}
    return names


def claims_in(tree: ast.AST, claimers: set[str]) -> Iterator[ast.Call]:
    """The calls of `….claim(…)` in a piece of code, and of the functions of its module that make some."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute) and node.func.attr == "claim":
                yield node
            if isinstance(node.func, ast.Name) and node.func.id in claimers:
                yield node


def only_on_some_machines(source: str) -> list[int]:
    """The lines of exact claims that exist, or read differently, with CUDA or without."""
    module, found = ast.parse(source), []
    functions = [node for node in ast.walk(module) if isinstance(node, ast.FunctionDef)]
    claimers = {function.name for function in functions if next(claims_in(function, set()), None)}
    for function in functions:
        names = assigned_from_cuda(function)
        for node in ast.walk(function):
            if isinstance(node, ast.If | ast.IfExp) and depends_on_cuda(node.test, names):
                branches = [*node.body, *node.orelse] if isinstance(node, ast.If) else [node.body, node.orelse]
                found += [claim.lineno for branch in branches for claim in claims_in(branch, claimers)]
                if isinstance(node, ast.If) and any(isinstance(each, ast.Return) for each in ast.walk(node)):
                    found += [claim.lineno for claim in claims_in(function, claimers) if claim.lineno > node.end_lineno]
        found += [claim.lineno for claim in claims_in(function, set()) if claim.args and depends_on_cuda(claim.args[0], names)]
    return sorted(set(found))


@pytest.mark.parametrize(
    "body",
    [
        "if params.device.is_cuda:\n    result.claim('same', a == b)",
        "off = difference(a) if not params.device.is_cuda else None\nif off is not None:\n    result.claim('same', off == 0)",
        "if not params.device.is_cuda:\n    return result\nresult.claim('same', a == b)",
        "what = 'streams' if params.device.is_cuda else 'threads'\nresult.claim(f'{what} change nothing', a == b)",
        "on_gpu = device.type == 'cuda'\nif on_gpu:\n    add_claims(result)",
    ],
)
def test_a_claim_that_stands_only_with_or_without_cuda_is_found(body):
    helper = "def add_claims(result):\n    result.claim('holds', True)\n"
    assert only_on_some_machines(f"{helper}def run(params, result):\n{textwrap.indent(body, '    ')}\n")
    assert not only_on_some_machines(f"{helper}def run(params, result):\n    add_claims(result)\n")


def test_every_exact_claim_exists_and_reads_the_same_with_and_without_cuda():
    found = {str(path.relative_to(ROOT)): only_on_some_machines(path.read_text(encoding="utf-8")) for path in SOURCES}
    assert {path: lines for path, lines in found.items() if lines} == {}, (
        "at these lines an exact claim depends on CUDA: claim it always and in the same words, or use `result.measured(…)`"
    )


CLOCKS = {"process_time", "perf_counter", "monotonic", "thread_time", "CLOCK", "stuck"}  # what is called
TIMES = {"seconds", "both", "hidden", "process_cpu"}  # fields of what was measured


def called(tree: ast.AST) -> set[str]:
    """The names of all functions and methods that a piece of code calls."""
    functions = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return {getattr(function, "attr", getattr(function, "id", "")) for function in functions}


def reads_a_clock(tree: ast.AST, names: set[str]) -> bool:
    """Whether an expression calls a clock, or reads a measured time or one of `names`, which were assigned from a clock.

    A lower bound (>=), below which a wait cannot end, may be exact.
    """
    compared = [node for node in ast.walk(tree) if isinstance(node, ast.Compare)]
    bounds = {id(part) for node in compared if isinstance(node.ops[0], ast.GtE) for part in ast.walk(node)}
    read = [node for node in ast.walk(tree) if id(node) not in bounds]
    times = {node.attr for node in read if isinstance(node, ast.Attribute)} & TIMES
    return bool(times or called(tree) & CLOCKS or {node.id for node in read if isinstance(node, ast.Name)} & names)


def timed_claims(source: str) -> list[int]:
    """The lines of exact claims and checks whose truth a clock decides."""
    found = []
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, ast.FunctionDef):
            continue
        names: set[str] = set()
        for node in ast.walk(function):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and called(node) & CLOCKS:
                names.add(node.targets[0].id)
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("claim", "check") and len(node.args) > 1:
                if reads_a_clock(node.args[1], names):
                    found.append(node.lineno)
    return sorted(set(found))


@pytest.mark.parametrize(
    "body",
    [
        "result.claim('overlap', loop.both > 1e-6)",
        "used = time.process_time() - start\nresult.claim('adds up', abs(total - used) < 0.05)",
        "equal = stuck(work, seconds)\nresult.check('the clock runs', not equal)",
    ],
)
def test_a_claim_that_a_clock_decides_is_found(body):
    assert timed_claims(f"def run(result):\n{textwrap.indent(body, '    ')}\n")
    assert not timed_claims("def run(result):\n    result.claim('no faster', all(e.seconds >= bound for e in epochs))\n")


def test_no_clock_decides_an_exact_claim_or_a_check():
    found = {str(path.relative_to(ROOT)): timed_claims(path.read_text(encoding="utf-8")) for path in SOURCES}
    assert {path: lines for path, lines in found.items() if lines} == {}, (
        "at these lines a clock decides an exact claim or a check: count instead, or use `result.measured(…)`"
    )
