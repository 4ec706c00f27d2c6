"""torch.optim's contract: groups, state, closures, hooks, schedulers, scaler, errors. And what is better than torch's."""

import copy
import inspect
import io
import math
import pickle
import warnings

import pytest
import torch
from test_optim_bits import NAMES, OF_WHOLE_TENSORS, assert_same_bits, decay, parameters, walk
from torch.optim import lr_scheduler
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.testing._internal.common_optimizers import OptimizerErrorEnum, optim_db

import hpml_lab.optim
from hpml_lab.optim import SGD, Adagrad, Adam, AdamW, NAdam, RMSprop, SparseAdam

SHAPES = ((3, 5), (7,))
CLASSES = [getattr(hpml_lab.optim, name) for name in NAMES]
OFFERED = [found for name in hpml_lab.optim.__all__ if isinstance(found := getattr(hpml_lab.optim, name), type)]
by_class = pytest.mark.parametrize("make", CLASSES, ids=lambda value: value.__name__)
by_name = pytest.mark.parametrize("name", NAMES)
ERRORS = [
    pytest.param(info.optim_cls.__name__, entry, id=f"{info.optim_cls.__name__}: {entry.optimizer_error_input.desc}")
    for info in optim_db
    for entry in info.optim_error_inputs_func("cpu", torch.float32)
]


def both(name, dtype=torch.float32, **options):
    """(ours, torch's) over equal parameters."""
    made = []
    for module in (hpml_lab.optim, torch.optim):
        more = {"foreach": False} if module is torch.optim else {}
        made.append(getattr(module, name)(parameters(SHAPES, dtype), **options, **more))
    return made


def go(optimizer, steps):
    walk(optimizer, [p for group in optimizer.param_groups for p in group["params"]], steps)


# ---- torch's contract --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name, entry", ERRORS)
def test_torchs_error_inputs_are_refused_as_by_torch(name, entry):
    def happens(module):
        faulty = entry.optimizer_error_input
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                optimizer = getattr(module, name)(faulty.params, **faulty.kwargs)
                if entry.error_on is OptimizerErrorEnum.STEP_ERROR:
                    optimizer.step()
            except Exception as error:
                return type(error), str(error)
        return [str(warning.message) for warning in caught]

    assert happens(hpml_lab.optim) == happens(torch.optim) != []


def test_there_are_at_least_67_error_inputs_of_every_class():
    assert {param.values[0] for param in ERRORS} == {make.__name__ for make in OFFERED if hasattr(torch.optim, make.__name__)}
    assert len(ERRORS) >= 67


@pytest.mark.parametrize("make", OFFERED, ids=lambda optimizer: optimizer.__name__)
def test_every_option_has_a_type(make):
    for method in (make.__init__, make.step, make.explain):
        _, *options = inspect.signature(method).parameters.values()
        assert [option.name for option in options if option.annotation is option.empty] == []
        assert inspect.signature(method).return_annotation is not inspect.Signature.empty


@pytest.mark.parametrize("name", [*NAMES, *OF_WHOLE_TENSORS, "LBFGS"])
def test_signature_and_groups_are_torchs(name):
    ours, theirs = (inspect.signature(getattr(module, name)).parameters for module in (hpml_lab.optim, torch.optim))
    newer = {"maximize"} if name == "LBFGS" else set()  # which torch 2.11's has not
    assert [(p.name, p.default, p.kind) for p in ours.values() if p.name in theirs or p.name not in newer] == [
        (p.name, p.default, p.kind) for p in theirs.values()
    ]
    mine, torchs = (getattr(module, name)([torch.ones(2, 3)]) for module in (hpml_lab.optim, torch.optim))
    assert {**mine.param_groups[0], "params": 0, "foreach": 0} == {**torchs.param_groups[0], "params": 0, "foreach": 0}


def test_sparse_adam_keeps_its_options_and_no_others():
    p = torch.nn.Parameter(torch.ones(2))
    saved = [package.SparseAdam([p], lr=0.1).state_dict() for package in (hpml_lab.optim, torch.optim)]
    assert saved[0] == saved[1]
    for options in ({"lr": 0.0}, {"eps": 0.0}, {"lr": torch.tensor(0.0)}):
        for package in (hpml_lab.optim, torch.optim):
            with pytest.raises(ValueError, match="Invalid .*: "):
                package.SparseAdam([p], **options)


@by_name
def test_groups_with_options_of_their_own_and_one_that_joins_later(name):
    runs = []
    for module in (hpml_lab.optim, torch.optim):
        a, b, c, late = parameters(((3, 5), (7,), (2,)), torch.float32)
        options = {} if module is hpml_lab.optim else {"foreach": False}
        groups = [{"params": [("a", a)], "lr": 0.3}, {"params": [("b", b), ("c", c)], "weight_decay": 0.1, "maximize": True}]
        optimizer = getattr(module, name)(groups, lr=0.01, **options)
        go(optimizer, 5)
        if name != "Adagrad" or module is hpml_lab.optim or torch.__version__ >= "2.15":  # torch 2.11's stops here
            optimizer.add_param_group({"params": [("late", late)], "lr": 0.5})
            go(optimizer, 5)
        runs.append(optimizer)
    if len(runs[0].param_groups) == len(runs[1].param_groups):
        assert_same_bits(*runs)
    assert runs[0].state_dict()["param_groups"][1]["param_names"] == ["b", "c"]


@by_class
def test_duplicates_are_refused_as_by_torch(make):
    p = torch.nn.Parameter(torch.ones(2))
    with pytest.warns(UserWarning, match="duplicate parameters"):
        make([p, p])
    with pytest.raises(ValueError, match="more than one parameter group"):
        make([{"params": [p]}, {"params": [p]}])
    with pytest.raises(ValueError, match="empty parameter list"):
        make([])


@by_name
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_state_goes_to_torch_and_back(name, dtype):
    mine, theirs = both(name, dtype, **decay(name, 0.01))
    go(mine, 4)
    go(theirs, 4)
    mine.load_state_dict(copy.deepcopy(theirs.state_dict()))
    go(mine, 4)
    theirs2 = getattr(torch.optim, name)([p.detach().clone().requires_grad_() for p in theirs.param_groups[0]["params"]])
    theirs2.load_state_dict(copy.deepcopy(getattr(torch.optim, name).state_dict(theirs)))
    go(theirs2, 4)
    if name not in ("NAdam", "ASGD") or dtype == torch.float32:  # torch's lose bits there: see below
        assert_same_bits(mine, theirs2)
    saved = mine.state_dict()
    theirs2.load_state_dict(saved)
    assert theirs2.state_dict()["state"].keys() == saved["state"].keys()


@by_class
def test_a_run_that_is_saved_and_resumed_is_the_run_that_was_not(make):
    def fresh():
        return make(parameters(SHAPES, torch.float64), **decay(make.__name__, 0.1))

    whole, first = fresh(), fresh()
    go(whole, 5)
    go(first, 5)
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    second = make([p.detach().clone().requires_grad_() for p in first.param_groups[0]["params"]], lr=7.0)
    second.load_state_dict(torch.load(file))
    go(whole, 5)
    go(second, 5)
    assert_same_bits(second, whole)


@by_class
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))], ids=["deepcopy", "pickle"])
def test_copies_go_on_alike(make, copied):
    optimizer = make(parameters(SHAPES, torch.float32))
    go(optimizer, 3)
    twin = copied(optimizer)
    go(optimizer, 3)
    go(twin, 3)
    assert_same_bits(twin, optimizer)


@by_class
def test_a_closure_is_called_once_with_gradients_on(make):
    p = torch.nn.Parameter(torch.tensor([2.0, -3.0]))
    optimizer, calls = make([p], lr=0.1), []

    def closure():
        optimizer.zero_grad()
        calls.append(torch.is_grad_enabled())
        loss = (p**2).sum()
        loss.backward()
        return loss

    with torch.no_grad():
        assert optimizer.step(closure).item() == 13
    assert calls == [True] and not torch.equal(p, torch.tensor([2.0, -3.0]))
    optimizer.zero_grad()
    assert p.grad is None


@by_class
def test_hooks_are_called_in_torchs_order(make):
    optimizer, seen = make(parameters(SHAPES, torch.float32)), []
    optimizer.register_step_pre_hook(lambda *_: seen.append("before"))
    optimizer.register_step_post_hook(lambda *_: seen.append("after"))
    optimizer.register_state_dict_post_hook(lambda *_: seen.append("saved"))
    optimizer.register_load_state_dict_pre_hook(lambda *_: seen.append("loading"))
    everywhere = register_optimizer_step_post_hook(lambda *_: seen.append("global"))
    try:
        go(optimizer, 1)
    finally:
        everywhere.remove()
    optimizer.load_state_dict(optimizer.state_dict())
    assert seen == ["before", "after", "global", "saved", "loading"]


def test_a_profiler_sees_the_step():
    optimizer = Adam(parameters(SHAPES, torch.float32))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
        go(optimizer, 1)
    assert any(event.key == "Optimizer.step#Adam.step" for event in seen.key_averages())


@by_name
@pytest.mark.parametrize(
    "schedule",
    [
        lambda optimizer: lr_scheduler.StepLR(optimizer, 3),
        lambda optimizer: lr_scheduler.CosineAnnealingLR(optimizer, 10),
        lambda optimizer: lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=12),
    ],
    ids=["step", "cosine", "one-cycle"],
)
def test_schedulers_move_the_rate(name, schedule):
    runs = []
    for optimizer in both(name, **({"momentum": 0.9} if name in ("SGD", "RMSprop") else {})):
        try:
            scheduler = schedule(optimizer)
        except ValueError as error:
            assert "momentum" in str(error) and name in ("ASGD", "Rprop", "Adagrad", "Adadelta")
            return
        for _ in range(10):
            go(optimizer, 1)
            scheduler.step()
        runs.append(optimizer)
    assert runs[0].param_groups[0]["lr"] == runs[1].param_groups[0]["lr"] != runs[0].defaults["lr"]
    assert_same_bits(*runs)


@by_name
def test_a_gradient_scaler_skips_the_same_steps(name):
    runs = []
    for optimizer in both(name):
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=2)
        params = optimizer.param_groups[0]["params"]
        for t in range(6):
            optimizer.zero_grad()
            loss = sum((p**2).sum() for p in params) * (math.inf if t == 3 else 1.0)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        runs.append(optimizer)
    assert all(p.isfinite().all() for p in runs[0].param_groups[0]["params"])
    assert_same_bits(*runs)


@pytest.mark.parametrize("make", [Adam, AdamW, NAdam, RMSprop], ids=lambda value: value.__name__)
def test_sparse_gradients_are_refused_with_torchs_words(make):
    table = torch.nn.Embedding(5, 2, sparse=True)
    table(torch.tensor([1, 2])).sum().backward()

    def refused(module):
        with pytest.raises(RuntimeError) as error:
            getattr(module, make.__name__)(table.parameters()).step()
        return str(error.value)

    assert refused(hpml_lab.optim) == refused(torch.optim)


def test_the_rate_of_adagrad_decays_for_sparse_gradients_as_torchs_does():
    tables = []
    for module in (hpml_lab.optim, torch.optim):
        torch.manual_seed(0)
        table = torch.nn.Embedding(6, 3, sparse=True)
        optimizer = module.Adagrad(table.parameters(), lr=0.1, lr_decay=0.5)
        for step in range(4):
            optimizer.zero_grad()
            table(torch.tensor([step, 5, 5])).pow(2).sum().backward()
            optimizer.step()
        tables.append(table.weight.detach())
    assert torch.equal(*tables)


def test_a_differentiable_adagrad_takes_sparse_gradients_as_torchs_does():
    slopes = []
    for module in (hpml_lab.optim, torch.optim):
        table = torch.ones(4, 2, requires_grad=True)
        optimizer = module.Adagrad([followed := table.clone()], lr=0.1, differentiable=True)
        followed.grad = torch.eye(4, 2).to_sparse()
        optimizer.step()
        slopes.append((followed.detach(), *torch.autograd.grad(followed.square().sum(), table)))
    for ours, theirs in zip(*slopes, strict=True):
        assert torch.equal(ours, theirs)


def test_sparse_adam_refuses_dense_gradients_and_adagrad_decay_of_sparse_ones():
    p = torch.nn.Parameter(torch.ones(2))
    p.grad = torch.ones(2)
    with pytest.raises(RuntimeError, match="does not support dense gradients"):
        SparseAdam([p]).step()
    p.grad = torch.ones(2).to_sparse()
    with pytest.raises(RuntimeError, match="not compatible with sparse"):
        Adagrad([p], weight_decay=0.1).step()


@by_name
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("saved_by", [hpml_lab.optim, torch.optim], ids=["ours to torch's", "torch's to ours"])
def test_the_other_package_takes_over_in_mid_run(name, dtype, saved_by):
    loaded_by = torch.optim if saved_by is hpml_lab.optim else hpml_lab.optim
    options = {**decay(name, 0.01), "foreach": False}
    first = getattr(saved_by, name)(parameters(SHAPES, dtype), lr=0.03, **options)
    go(first, 6)
    params = [p.detach().clone().requires_grad_() for p in first.param_groups[0]["params"]]
    second = getattr(loaded_by, name)(params, lr=7.0, foreach=False)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    assert {**second.param_groups[0], "params": 0} == {**first.param_groups[0], "params": 0}
    go(first, 6)
    go(second, 6)
    if loaded_by is torch.optim and name in ("NAdam", "ASGD") and dtype == torch.float64:
        return  # torch's load rounds the steps that follow: shown below
    assert_same_bits(second, first)


@by_class
def test_hooks_of_saving_and_loading_may_change_what_is_kept_and_can_be_removed(make):
    optimizer, seen = make(parameters(SHAPES, torch.float32)), []
    hooks = [
        optimizer.register_state_dict_pre_hook(lambda optimizer: seen.append("saving")),
        optimizer.register_state_dict_post_hook(lambda optimizer, state: {**state, "note": "kept"}),
        optimizer.register_load_state_dict_post_hook(lambda optimizer: seen.append("loaded")),
        optimizer.register_step_pre_hook(lambda optimizer, args, options: seen.append("step")),
    ]
    go(optimizer, 1)
    saved = optimizer.state_dict()
    optimizer.load_state_dict(saved)
    assert seen == ["step", "saving", "loaded"] and saved["note"] == "kept"
    for hook in hooks:
        hook.remove()
    go(optimizer, 1)
    assert "note" not in optimizer.state_dict() and len(seen) == 3


@by_name
@pytest.mark.parametrize(
    "schedule",
    [
        lambda optimizer: lr_scheduler.LambdaLR(optimizer, lambda t: 1 / (1 + t)),
        lambda optimizer: lr_scheduler.ExponentialLR(optimizer, 0.8),
        lambda optimizer: lr_scheduler.CyclicLR(optimizer, 0.001, 0.1, step_size_up=3, cycle_momentum=False),
        lambda optimizer: lr_scheduler.ReduceLROnPlateau(optimizer, patience=1),
        lambda optimizer: lr_scheduler.SequentialLR(
            optimizer,
            [lr_scheduler.LinearLR(optimizer, 0.1, total_iters=3), lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 4)],
            [3],
        ),
    ],
    ids=["lambda", "exponential", "cyclic", "plateau", "sequential"],
)
@pytest.mark.parametrize("rate", [0.05, torch.tensor(0.05)], ids=["number", "tensor"])
def test_more_schedulers_move_numbers_and_tensors(name, schedule, rate):
    runs, rates = [], []
    for module in (hpml_lab.optim, torch.optim):
        own = copy.deepcopy(rate)
        optimizer = getattr(module, name)(parameters(SHAPES, torch.float32), lr=own, foreach=False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of a tensor rate that becomes a number
            scheduler = schedule(optimizer)
            for _ in range(10):
                go(optimizer, 1)
                scheduler.step(*([1.0] if isinstance(scheduler, lr_scheduler.ReduceLROnPlateau) else []))
        runs.append(optimizer)
        rates.append(float(optimizer.param_groups[0]["lr"]))
    assert rates[0] == rates[1] != 0.05
    assert_same_bits(*runs)


@by_class
def test_a_tensor_rate_is_kept_as_the_same_object_and_read_anew_at_each_step(make):
    rate = torch.tensor(0.5)
    optimizer = make([{"params": [p]} for p in parameters(SHAPES, torch.float32)], lr=rate)
    go(optimizer, 2)
    assert all(group["lr"] is rate for group in optimizer.param_groups) and rate.item() == 0.5
    rate.zero_()
    go(optimizer, 1)  # of which ASGD knows the rate already
    before = [p.detach().clone() for group in optimizer.param_groups for p in group["params"]]
    go(optimizer, 2)
    after = [p.detach() for group in optimizer.param_groups for p in group["params"]]
    still = all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert still is (make is not hpml_lab.optim.Rprop), "a rate of 0 moves nothing; Rprop's is only the first size of its steps"


@by_class
def test_gradients_are_set_to_zero_where_asked(make):
    optimizer = make(parameters(SHAPES, torch.float32))
    go(optimizer, 1)
    params = optimizer.param_groups[0]["params"]
    assert any(p.grad.any() for p in params)
    optimizer.zero_grad(set_to_none=False)
    assert all(p.grad is not None and not p.grad.any() for p in params)


# ---- better than torch's -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=["float64", "bfloat16"])
def test_nadam_keeps_its_product_of_momenta_through_a_save_where_torch_rounds_it(dtype):
    def kept(module):
        optimizer = module.NAdam(parameters(SHAPES, dtype))
        go(optimizer, 20)
        again = module.NAdam([p.detach().clone().requires_grad_() for p in optimizer.param_groups[0]["params"]])
        again.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        before, after = ([state["mu_product"].clone() for state in saved.state.values()] for saved in (optimizer, again))
        go(optimizer, 5)
        go(again, 5)
        same = all(torch.equal(p, q) for p, q in zip(*(o.param_groups[0]["params"] for o in (optimizer, again)), strict=True))
        return [value.dtype for value in after], [value.item() for value in before] == [value.item() for value in after], same

    dtypes, value, same = kept(hpml_lab.optim)
    assert (set(dtypes), value, same) == ({torch.float32}, True, True)
    dtypes, value, same = kept(torch.optim)
    assert set(dtypes) == {dtype}, "torch has fixed this: say so in notebook 05"
    assert value == (dtype == torch.float64), "bfloat16 has rounded it"
    assert same == (dtype == torch.bfloat16), "in float64 the steps that follow differ"


def loss_after(make, lr, steps=4, **options):
    """The loss after some steps on a quadratic, as a function of the learning rate that autograd can follow."""
    p = torch.tensor([1.5, -0.7, 0.3], dtype=torch.float64, requires_grad=True).clone()
    optimizer = make([p], lr=lr, differentiable=True, **options)
    for _ in range(steps):
        seen = p.clone()  # the step changes p itself; backward wants it as the loss saw it
        loss = (torch.tensor([1.0, 4.0, 9.0], dtype=torch.float64) * seen**2).sum()
        (p.grad,) = torch.autograd.grad(loss, seen, create_graph=True)
        optimizer.step()
    return (p**2).sum()


HYPER = [
    (SGD, {"momentum": 0.9}),
    (SGD, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    *[(make, {}) for make in CLASSES],
    (Adam, {"amsgrad": True}),
    (AdamW, {"weight_decay": 0.1}),
    (RMSprop, {"centered": True, "momentum": 0.5}),
]


@pytest.mark.parametrize("make, options", HYPER, ids=lambda value: getattr(value, "__name__", str(value)))
def test_the_loss_has_a_derivative_by_the_learning_rate(make, options):
    lr = torch.tensor(0.02, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(loss_after(make, lr, **options), lr)
    h = 1e-6
    with torch.enable_grad():
        up, down = (loss_after(make, torch.tensor(0.02 + d, dtype=torch.float64), **options).item() for d in (h, -h))
    assert slope.item() == pytest.approx((up - down) / (2 * h), rel=1e-6)
    assert slope.item() != 0


@by_class
def test_a_differentiable_run_walks_as_the_plain_one(make):
    plain = make(parameters(SHAPES, torch.float64), **decay(make.__name__, 0.01))
    params = [p.detach().clone().requires_grad_().clone() for p in plain.param_groups[0]["params"]]
    followed = make(params, **decay(make.__name__, 0.01), differentiable=True)
    go(plain, 10)
    for p in params:
        p.retain_grad()
    from test_optim_bits import gradients

    for row in gradients(params, 10):
        for p, g in zip(params, row, strict=True):
            p.grad = g
        followed.step()
    for p, q in zip(params, plain.param_groups[0]["params"], strict=True):
        torch.testing.assert_close(p, q, rtol=1e-13, atol=1e-13)


REFUSED = [
    (SGD, {"lr": math.inf}, "only inf and nan"),
    (SGD, {"lr": math.nan}, "learning rate: nan"),
    (Adam, {"lr": math.inf}, "only inf and nan"),
    (SGD, {"lr": 0.1, "momentum": 1.5}, "grows by that factor"),
    (SGD, {"lr": 0.1, "momentum": math.nan}, "momentum value: nan"),
    (SparseAdam, {"lr": math.nan}, "every parameter would be nan"),
    (RMSprop, {"momentum": 2.0}, "grows by that factor"),
    (SGD, {"lr": 0.1, "momentum": 0.9, "dampening": -1.0}, "dampening value: -1.0"),
    (RMSprop, {"alpha": 1.5}, "never forgets"),
    (Adam, {"betas": (0.9,)}, "give two numbers"),
    (Adam, {"betas": 0.9}, "give two numbers"),
    (Adam, {"weight_decay": math.inf}, "weight_decay value: inf"),
    (Adagrad, {"initial_accumulator_value": math.nan}, "initial_accumulator_value value: nan"),
]


@pytest.mark.parametrize("make, options, why", REFUSED, ids=str)
def test_what_cannot_work_is_refused_with_the_reason(make, options, why):
    with pytest.raises(ValueError, match=why):
        make(parameters(SHAPES, torch.float32), **options)


@pytest.mark.parametrize("make, options, why", REFUSED, ids=str)
def test_a_groups_own_options_are_refused_too(make, options, why):
    p, late = torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(2))
    with pytest.raises(ValueError, match=why):
        make([{"params": [p], **options}], lr=0.1)
    optimizer = make([p], lr=0.1)
    with pytest.raises(ValueError, match=why):
        optimizer.add_param_group({"params": [late], **options})
    assert len(optimizer.param_groups) == 1


def test_texts_and_missing_kernels_are_refused_with_the_fix():
    with pytest.raises(TypeError, match="lr must be a number, not str: '0.1'"):
        Adam(parameters(SHAPES, torch.float32), lr="0.1")
    with pytest.raises(RuntimeError, match="no fused kernel; leave `fused` out"):
        Adam(parameters(SHAPES, torch.float32), fused=True)
    with pytest.raises(RuntimeError, match="leave `capturable` out"):
        Adam(parameters(SHAPES, torch.float32), capturable=True)
    with pytest.raises(RuntimeError, match="leave it out with `differentiable`"):
        Adam(parameters(SHAPES, torch.float32), foreach=True, differentiable=True)
