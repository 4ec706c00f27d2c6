"""The optimizers' specification, as a table: every class × every option × every way in which an option comes or changes.

What shows a fault is the same in each cell: the bits of torch.optim after some steps and its state_dict (of the classes that
torch does not have: those of the run that had the option from its start), and `explain()`, which shows the option.
"""

import copy
import inspect
import pickle

import pytest
import torch

import hpml_lab.optim as ours
from hpml_lab.core.system.errors import LabError
from hpml_lab.optim.lamb import OF_ALL_GROUPS

CLASSES = [name for name in ours.__all__ if isinstance(getattr(ours, name), type)]
SHARED = [name for name in CLASSES if hasattr(torch.optim, name)]
VALUES = {
    "lr": [0.03, torch.tensor(0.03), torch.tensor(0.03, dtype=torch.float64)],
    "betas": [(0.8, 0.95)],
    "eps": [1e-3],
    "weight_decay": [0.1],
    "momentum": [0.7],
    "dampening": [0.3, torch.tensor(0.3)],
    "nesterov": [True],
    "maximize": [True],
    "amsgrad": [True],
    "decoupled_weight_decay": [True],
    "rho": [0.7],
    "alpha": [0.9],
    "centered": [True],
    "lr_decay": [0.1],
    "initial_accumulator_value": [0.5],
    "momentum_decay": [0.01],
    "trust_coeff": [0.01],
    "always_adapt": [False],
    "bias_correction": [False],
    "max_grad_norm": [0.5],
    "pre_normalize": [True],
    "grad_averaging": [True],
    "foreach": [True],
    "etas": [(0.4, 1.3)],
    "step_sizes": [(0.012, 0.013)],
    "lambd": [0.1],
    "t0": [0.0],
    "beta2_decay": [-0.5],
    "d": [1.5],
    "max_iter": [3],
    "max_eval": [4],
    "tolerance_grad": [2.0],
    "tolerance_change": [0.1],
    "history_size": [1],
    "line_search_fn": ["strong_wolfe"],
    "ns_coefficients": [(3.4, -4.7, 2.0)],
    "ns_steps": [3],
    "adjust_lr_fn": [rule for rule in ("match_rms_adamw", "spectral_unclamped") if rule in torch.optim.Muon.__doc__],
}
OF_ONE_CLASS = {  # where an option has another meaning or default
    ("Muon", "eps"): [5.0],  # more than the norm
    ("Muon", "nesterov"): [False],
    ("Muon", "weight_decay"): [0.3],
    ("Adafactor", "eps"): [(0.5, 2.0)],
}
NEEDS = {  # other options, without which one has no effect
    "nesterov": {"momentum": 0.9},
    "dampening": {"momentum": 0.9},
    "decoupled_weight_decay": {"weight_decay": 0.1},
    "always_adapt": {"weight_decay": 0.0},
    "amsgrad": {"betas": (0.9, 0.5)},  # so that v falls
    "alpha": {"lambd": 0.5},
    "maximize": {"max_iter": 2},  # what is maximized here has no maximum
}
OF_THE_COURSE = {"foreach": {}}  # ours alone: torch's plain loop has to give the same bits
WITHOUT_NUMBERS = {"capturable", "differentiable", "fused"}  # refused, or below


STEPS = 6  # RAdam's rule changes at the sixth


def options_of(name):
    return [option for option in inspect.signature(getattr(ours, name)).parameters if option != "params"]


def values_of(name, option):
    return OF_ONE_CLASS.get((name, option), VALUES.get(option, []))


def tensors(name):
    made = torch.Generator().manual_seed(0)
    shapes = ((3, 4), (5, 2)) if name == "Muon" else ((3, 4), (5,))
    return [torch.randn(shape, generator=made).requires_grad_() for shape in shapes]


def copies(params):
    return [p.detach().clone().requires_grad_() for p in params]


def walk(optimizer, params, steps, seed):
    made = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        slopes = [torch.randn(p.shape, generator=made) for p in params]
        if "Sparse" in type(optimizer).__name__:
            slopes = [(slope * (slope > 0)).to_sparse() for slope in slopes]

        def closure(slopes=slopes):
            for p, slope in zip(params, slopes, strict=True):
                p.grad = slope + p.detach() + p.detach().sin() / 2 if type(optimizer).__name__ == "LBFGS" else slope
            terms = [p**2 / 2 - p.cos() / 2 + slope.to_dense() * p for p, slope in zip(params, slopes, strict=True)]
            return sum(term.sum() for term in terms)

        optimizer.step(closure)


# ---- the ways: each gives (optimizer, parameters) with `option` = value, from a function make(parameters, **options) ---------


def constructor(make, base, option):
    params = make.started(tensors(make.of))
    return make(params, **base, **option), params


def group(make, base, option):
    params = make.started(tensors(make.of))
    return make([{"params": params[:1], **option}, {"params": params[1:], **option}], **base), params


def add_param_group(make, base, option):
    params = make.started(tensors(make.of))
    optimizer = make(params[:1], **base, **option)
    walk(optimizer, params[:1], 1, 1)
    optimizer.add_param_group({"params": params[1:], **base, **option})
    return optimizer, params


def mid_run(make, base, option):
    optimizer, params = constructor(make, base, {})
    walk(optimizer, params, 2, 1)
    for entry in optimizer.param_groups:
        entry.update(option)
    return optimizer, params


def loaded(make, base, option, *, change=lambda saved: saved, prepare=lambda optimizer: None, of=None):
    first, params = constructor(of or make.plain, base, option)
    walk(first, params, 2, 1)
    saved = change(copy.deepcopy(first.state_dict()))
    own = make.started(copies(params))
    optimizer = make(own, **base)
    prepare(optimizer)
    optimizer.load_state_dict(saved)
    return optimizer, own


def file_of_its_own(make, base, option):
    return loaded(make, base, option)


def file_of_torch(make, base, option):
    return loaded(make, base, option, of=make.torchs)


def file_of_an_older_torch(make, base, option):
    def older(saved):
        for state in saved["state"].values():
            for name in {"step", "mu_product", "eta", "mu"} & state.keys():
                state[name] = float(state[name])
        for entry in saved["param_groups"]:
            for name in {"foreach", "maximize", "capturable", "differentiable", "fused"} - option.keys():
                if (make.of, name) != ("Adafactor", "maximize"):  # which torch's has had from the start
                    entry.pop(name, None)
        return saved

    return loaded(make, base, option, change=older, of=make.torchs)


def pre_hook_of_loading(make, base, option):
    """The file has the parameters in another order, which a hook puts right, as torch's documentation shows."""

    def swapped(saved):
        return {**saved, "state": {1 - index: state for index, state in saved["state"].items()}}

    def prepare(optimizer):
        optimizer.register_load_state_dict_pre_hook(lambda _, saved: swapped(saved))

    return loaded(make, base, option, change=swapped, prepare=prepare)


def post_hook_of_loading(make, base, option):
    def prepare(optimizer):
        optimizer.register_load_state_dict_post_hook(
            lambda loaded: [entry.update(option) for entry in loaded.param_groups] and None
        )

    return loaded(make, base, {}, prepare=prepare)


def deepcopied(make, base, option):
    optimizer, params = constructor(make, base, option)
    walk(optimizer, params, 2, 1)
    return copy.deepcopy((optimizer, params))


def pickled(make, base, option):
    optimizer, params = constructor(make, base, option)
    walk(optimizer, params, 2, 1)
    return pickle.loads(pickle.dumps((optimizer, params)))


def in_shared_memory(make, base, option):
    optimizer, params = constructor(make, base, option)
    walk(optimizer, params, 2, 1)
    if hasattr(optimizer, "share_memory"):  # Adagrad has it, whose state is there before the first step
        optimizer.share_memory()
        assert all(state["sum"].is_shared() for state in optimizer.state.values())
    for tensor in [*params, *(value for state in optimizer.state.values() for value in state.values())]:
        if isinstance(tensor, torch.Tensor):
            tensor.share_memory_()
    return optimizer, params


WAYS = [
    constructor,
    group,
    add_param_group,
    mid_run,
    file_of_its_own,
    file_of_torch,
    file_of_an_older_torch,
    pre_hook_of_loading,
    post_hook_of_loading,
    deepcopied,
    pickled,
    in_shared_memory,
]
FROM_THE_START = {constructor, group, file_of_its_own, pre_hook_of_loading, deepcopied, pickled, in_shared_memory}
OF_TORCH = {file_of_torch, file_of_an_older_torch}


UNSEEN_BY_TORCH = {
    ("initial_accumulator_value", group),
    ("history_size", mid_run),  # a history that is too long already goes on to grow
    ("history_size", post_hook_of_loading),
}
OF_WHICH_TORCH_MAKES_NO_COPY = "LBFGS"


def makers(name, **switch):
    """make(parameters, **options) for torch.optim's plain loop, None where torch has no such class, and for this package's.

    The package's own is made with `switch`: differentiable=True, and then of parameters that have a graph, as no leaf changes
    in a step that autograd tracks.
    """

    def of_torch(params, **options):
        options = {key: value for key, value in options.items() if key not in OF_THE_COURSE}
        plain = {"foreach": False} if "foreach" in inspect.signature(getattr(torch.optim, name)).parameters else {}
        return getattr(torch.optim, name)(params, **options, **plain)

    def own(params, **options):
        return getattr(ours, name)(params, **options, **switch)

    def started(params):
        return [p.clone() for p in params] if switch else params

    of_torch.torchs = own.torchs = of_torch.plain = of_torch
    of_torch.of = own.of = name
    of_torch.started, own.started = list, started
    own.plain = makers(name)[1] if switch else own
    return (of_torch if name in SHARED else None), own


def end(way, make, base, option):
    """(parameters and state after some steps, the optimizer), or the error that was raised."""
    try:
        optimizer, params = way(make, base, option)
        walk(optimizer, params, STEPS, 5)
    except Exception as error:
        return error, None
    return [params, kept(optimizer)], optimizer


def kept(optimizer):
    """The state, without the entries of None that torch's SGD has where there is no momentum."""
    state = optimizer.state_dict()["state"]
    known = {p: {name: value for name, value in entries.items() if value is not None} for p, entries in state.items()}
    return {p: entries for p, entries in known.items() if entries}


def same(a, b):
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


def test_every_option_of_every_class_is_in_the_table():
    assert {option for name in CLASSES for option in options_of(name)} == {*VALUES, *WITHOUT_NUMBERS}
    assert len(CLASSES) * len(WAYS) >= 144


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("name", CLASSES)
def test_an_option_holds_however_it_comes(name, way):
    if way in OF_TORCH and name not in SHARED:
        pytest.skip("torch has no such class, and so no files of it")
    if way in (group, add_param_group) and name == "LBFGS":
        pytest.skip("it has one group: test_optim_lbfgs.py")
    cells = 0
    for option in options_of(name):
        for value in values_of(name, option):
            of_torch, own = makers(name)
            given = {option: copy.deepcopy(value)}
            base = {key: known for key, known in NEEDS.get(option, {}).items() if key in options_of(name)}
            got, optimizer = end(way, own, base, given)
            newer = (
                name in SHARED and option not in inspect.signature(getattr(torch.optim, name)).parameters
            )  # LBFGS's maximize
            if newer and way in OF_TORCH:
                continue
            if newer or (name == OF_WHICH_TORCH_MAKES_NO_COPY and way in (deepcopied, pickled)):
                of_torch = None
            if of_torch is not None and (option, way) not in UNSEEN_BY_TORCH:
                expected, _ = end(way, of_torch, base, {key: given[key] for key in given if key not in OF_THE_COURSE})
            elif way in FROM_THE_START:
                expected, reference = end(constructor, own, base, given)
                if way is not constructor and way is not group:  # those have walked before
                    reference, params = constructor(own, base, given)
                    walk(reference, params, 2, 1)
                    walk(reference, params, STEPS, 5)
                    expected = [params, kept(reference)]
            else:
                expected = got
            where = f"{name}, {option}={value!r}, {way.__name__}"
            if name == "LAMB" and option in OF_ALL_GROUPS and way is group:
                assert isinstance(got, ValueError) and "all groups" in str(got), where
                continue
            if isinstance(expected, Exception) and option in getattr(ours, name).started_by.values():
                assert isinstance(expected, KeyError), (where, expected)  # torch misses a state; here it starts
                assert not isinstance(got, Exception), (where, got)
            elif isinstance(expected, Exception):
                assert type(got) is type(expected), (where, got, expected)
                continue
            else:
                assert not isinstance(got, Exception), (where, got)
                assert same(expected, got), where
            for index in range(2):
                shown = repr(optimizer.explain(index))
                assert f"{option}=" in shown or option in ("foreach", "initial_accumulator_value"), (where, shown)
                assert "<table" in optimizer.explain(index)._repr_html_()
            cells += 1
    assert cells >= 3, "options were tried"


@pytest.mark.parametrize("name", CLASSES)
def test_each_value_of_the_table_changes_the_walk(name):
    """A value without an effect would let every way pass."""
    for option in options_of(name):
        for value in values_of(name, option):
            if option in ("foreach", "differentiable"):
                continue
            _, own = makers(name)
            base = {key: known for key, known in NEEDS.get(option, {}).items() if key in options_of(name)}
            plain, changed = (end(constructor, own, base, given)[0] for given in ({}, {option: value}))
            seen = 1 if option == "t0" else 0  # the average, in the state, or the parameters
            assert not same(plain[seen], changed[seen]), (name, option)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", [name for name in CLASSES if "differentiable" in options_of(name)])
def test_a_differentiable_walk_is_the_plain_one_with_each_option(name, dtype):
    """Bit by bit; an option that is a tensor is multiplied, where the plain walk hands its number to a fused operation."""
    for option in options_of(name):
        for value in values_of(name, option):
            if option == "foreach":
                continue
            base = {key: known for key, known in NEEDS.get(option, {}).items() if key in options_of(name)}
            ends = []
            for more in ({}, {"differentiable": True}):
                params = [p.detach().to(dtype) for p in tensors(name)]
                if more:
                    params = [p.requires_grad_().clone() for p in params]
                given = {option: value.to(dtype) if isinstance(value, torch.Tensor) else value}
                optimizer = getattr(ours, name)([{"params": params, **more}], **base, **given, **more)
                for step in range(3):
                    for p in params:
                        p.grad = torch.sin(p.detach() + step)
                    optimizer.step()
                ends.append([p.detach() for p in optimizer.param_groups[0]["params"]])
            exact = {} if isinstance(value, torch.Tensor) else {"rtol": 0, "atol": 0}
            for plain, tracked in zip(*ends, strict=True):
                torch.testing.assert_close(plain, tracked, **exact, msg=f"{name}, {option}={value!r}")


# Left out: torch refuses a deepcopy of a tensor with a graph, and pickle makes a leaf of it, which no tracked step may change.
TRACKED_WAYS = [way for way in WAYS if way not in (deepcopied, pickled)]


@pytest.mark.parametrize("way", TRACKED_WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("name", [name for name in CLASSES if "differentiable" in options_of(name)])
def test_a_differentiable_walk_is_the_plain_one_however_an_option_comes(name, way):
    """Options that are numbers, bit by bit; tensors are in the test above. A file is a plain walk's: its state has no graph."""
    if way in OF_TORCH and name not in SHARED:
        pytest.skip("torch has no such class, and so no files of it")
    cells = 0
    for option in options_of(name):
        for value in values_of(name, option)[:1]:
            if option == "foreach":
                continue
            base = {key: known for key, known in NEEDS.get(option, {}).items() if key in options_of(name)}
            _, plain = makers(name)
            _, tracked = makers(name, differentiable=True)
            (expected, _), (got, optimizer) = (end(way, make, base, {option: value}) for make in (plain, tracked))
            where = f"{name}, {option}={value!r}, {way.__name__}"
            if isinstance(expected, Exception):
                assert type(got) is type(expected), (where, got, expected)
                continue
            assert not isinstance(got, Exception), (where, got)
            assert same(expected, got), where
            assert all(p.grad_fn.name() != "CloneBackward0" for p in got[0]), (where, "the steps are in the graph")
            cells += 1
    assert cells >= 3, "options were tried"


@pytest.mark.parametrize("name", CLASSES)
def test_a_step_reads_no_other_default(name):
    """What holds stands in the groups, which a file or a schedule may change."""
    optimizer, params = constructor(makers(name)[1], {}, {})
    walk(optimizer, params, 1, 1)
    optimizer.defaults = {"differentiable": False}  # what the optimizer was made for, as in torch.optim
    before = copies(params)
    walk(optimizer, params, 1, 2)
    assert not same(before, params)


@pytest.mark.parametrize("name", CLASSES)
def test_a_group_gets_no_option_by_being_saved(name):
    optimizer = getattr(ours, name)([torch.zeros(3, 4, requires_grad=True)])
    known = set(optimizer.param_groups[0])
    for _ in range(2):
        optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        for found in (optimizer, copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))):
            assert set(found.param_groups[0]) == known


@pytest.mark.parametrize("name", CLASSES)
def test_the_steps_of_a_meta_tensor_are_explained(name):
    params = [torch.empty(3, 4, device="meta", requires_grad=True)]
    optimizer = getattr(ours, name)(params)
    assert "(3, 4) float32" in repr(optimizer.explain())


@pytest.mark.parametrize("switch", ["fused", "capturable", "foreach", "differentiable"])
@pytest.mark.parametrize("name", [name for name in SHARED if name != "SparseAdam"])
def test_a_file_with_a_switch_of_torchs_goes_on_to_its_bits(name, switch):
    of_torch, own = makers(name)
    theirs, params = constructor(of_torch, {}, {})
    walk(theirs, params, 3, 1)
    saved = copy.deepcopy(theirs.state_dict())
    for entry in saved["param_groups"]:
        entry[switch] = True
    mine = own(ours_params := copies(params))
    mine.load_state_dict(saved)
    for optimizer, walked in ((theirs, params), (mine, ours_params)):
        walk(optimizer, walked, 3, 2)
    assert same(params, ours_params)


@pytest.mark.parametrize("name", CLASSES)
def test_another_optimizers_file_goes_on_to_torchs_bits_or_is_refused_with_what_it_lacks(name):
    """The options of a file hold, and those that it lacks are this class's own; torch raises a KeyError at the next step."""
    taken = 0
    for other in SHARED:
        file = makers(other)[0](saved := tensors("Muon"))
        walk(file, saved, 2, 1)
        ends = []
        for make in makers(name):
            if make is None:
                continue
            params = tensors("Muon")
            optimizer = make(params)
            try:
                optimizer.load_state_dict(copy.deepcopy(file.state_dict()))
                walk(optimizer, params, STEPS, 2)
                ends.append(params)
            except Exception as error:
                ends.append(error)
        *theirs, own = ends
        if isinstance(own, Exception):
            lacks = isinstance(own, LabError) and "this file has no" in str(own)
            assert lacks or type(own) is type(theirs[0]), (other, own)  # SparseAdam's refusals of dense gradients
            assert not theirs or isinstance(theirs[0], Exception), (other, own)
        else:
            taken += 1
            assert not theirs or isinstance(theirs[0], KeyError) or same(theirs[0], own), other
    assert taken >= 1
