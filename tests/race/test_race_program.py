"""The batched program: its gradients are autograd's, and each of its nets learns what it would learn alone."""

import pytest
import torch
from torch.nn import functional as F

from hpml_lab.data import load
from hpml_lab.race.tools.program import NETS, OPTIMIZERS, FullyConnected, Program, Setting, flat_inputs

RATES = {"SGD": 0.1, "Momentum": 0.05, "Nesterov": 0.05, "Adagrad": 0.02, "Adadelta": 1.0, "Adam": 0.003, "RMSprop": 0.002}
SETTINGS = [Setting(name, lr=lr) for name, lr in RATES.items()]
SMALL = {name: net.scaled(0.1) for name, net in NETS.items()}


@pytest.fixture(scope="module")
def digits():
    data = load("digits")
    return flat_inputs(data, torch.float64)[0], data.train_y


def program(digits, net="net 3", settings=SETTINGS, seeds=(3, 5), dtype=torch.float64, **options):
    x, y = digits
    return Program(SMALL[net], settings, seeds, x.to(dtype), y, batch=32, **options)


def alone(digits, net, setting, seed, steps, dtype=torch.float64):
    """The lecture's loop for one net: module, loss, backward, step, on the same batches."""
    x, y = digits
    order_of = program(digits, net).order
    module = SMALL[net].start(x.shape[1], seed, dtype)
    optimizer = setting.build(module.parameters())
    per_epoch = len(x) // 32
    for t in range(steps):
        epoch, index = divmod(t, per_epoch)
        rows = order_of(seed, epoch)[index * 32 : (index + 1) * 32]
        optimizer.zero_grad()
        F.cross_entropy(module(x[rows].to(dtype)), y[rows]).backward()
        optimizer.step()
    return module


def test_the_nets_are_the_lectures():
    counts = {name: sum(p.numel() for p in net.module(784).parameters()) for name, net in NETS.items()}
    assert counts == {"net 1": 7850, "net 2": 79_510, "net 3": 271_160}


@pytest.mark.parametrize("net", NETS)
def test_gradients_written_out_are_autograds(digits, net):
    many = program(digits, net)
    many.run(3)  # away from the start, where all settings of a seed are equal
    images, targets = many._next_batch()
    with torch.no_grad():
        many._backward(images, targets)
    for k in range(len(SETTINGS)):
        for r in range(2):
            module = many.module(k, r)
            F.cross_entropy(module(images[r]), targets[r]).backward()
            right = torch.cat([p.grad.flatten() for p in module.parameters()])
            assert right.abs().max() > 1e-4
            assert (many.gradients[k, r] - right).abs().max() <= 1e-12


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("net", NETS)
def test_each_net_learns_what_an_ordinary_loop_teaches_it(digits, net, name):
    steps = 100  # more than two epochs of 40 batches
    many = program(digits, net)
    many.run(steps)
    k = list(RATES).index(name)
    for r, seed in enumerate((3, 5)):
        module = alone(digits, net, SETTINGS[k], seed, steps)
        right = torch.cat([p.detach().flatten() for p in module.parameters()])
        start = torch.cat([p.detach().flatten() for p in SMALL[net].start(64, seed, torch.float64).parameters()])
        assert (right - start).abs().max() > 1e-2, "it has moved"
        assert (many.parameters[k, r] - right).abs().max() <= 1e-9


@pytest.mark.parametrize("net", NETS)
def test_what_trains_with_a_setting_changes_its_result_by_rounding_only(digits, net):
    """Not bitwise: for a single matrix, and on some processors for a few, libraries take other kernels than for many."""
    whole = program(digits, net, seeds=(3, 5, 8))
    whole.run(60)
    for settings, seeds in ((SETTINGS, (5,)), (SETTINGS[3:5], (3, 5, 8)), (SETTINGS[6:], (8,))):
        part = program(digits, net, settings, seeds)
        part.run(60)
        for k, setting in enumerate(settings):
            for r, seed in enumerate(seeds):
                same = whole.parameters[SETTINGS.index(setting), (3, 5, 8).index(seed)]
                assert (part.parameters[k, r] - same).abs().max() <= 1e-9, (setting, seed)


def test_a_setting_that_diverges_does_not_touch_the_others(digits):
    torch.set_num_threads(1)
    calm = program(digits, settings=[Setting("SGD", lr=0.1), Setting("Momentum", lr=0.01)], dtype=torch.float32)
    wild = program(digits, settings=[Setting("SGD", lr=0.1), Setting("Momentum", lr=1e38)], dtype=torch.float32)
    calm.run(50)
    wild.run(50)
    assert not wild.parameters[1].isfinite().all()
    assert torch.equal(calm.parameters[0], wild.parameters[0])


def test_all_settings_of_a_seed_start_alike_and_seeds_differ(digits):
    many = program(digits)
    assert (many.parameters == many.parameters[:1]).all()
    assert not torch.equal(many.parameters[0, 0], many.parameters[0, 1])
    assert not torch.equal(many.order(3, 0), many.order(5, 0))
    assert not torch.equal(many.order(3, 0), many.order(3, 1))
    assert torch.equal(many.order(3, 1), many.order(3, 1))


def test_the_process_keeps_its_own_random_numbers(digits):
    torch.manual_seed(7)
    right = torch.rand(3)
    torch.manual_seed(7)
    program(digits).run(2)
    assert torch.equal(torch.rand(3), right)


def test_an_epoch_shows_each_image_at_most_once_and_only_those_that_fill_no_batch_are_left_out(digits):
    x, y = digits
    many = Program(SMALL["net 1"], SETTINGS[:1], (0,), torch.arange(len(x), dtype=x.dtype)[:, None], y, batch=32)
    seen = []
    for _ in range(many.per_epoch):
        images, targets = many._next_batch()
        assert torch.equal(targets[0].argmax(1), y[images[0, :, 0].long()])
        seen += images[0, :, 0].tolist()
        many.iteration += 1
    assert len(seen) == len(set(seen)) == len(x) - len(x) % 32


def test_loss_and_accuracy_are_those_of_the_ordinary_net(digits):
    x, y = digits
    many = program(digits)
    many.run(20)
    loss, accuracy = many.evaluate(x, y)
    for k in range(len(SETTINGS)):
        logits = many.module(k, 1)(x)
        assert loss[k, 1].item() == pytest.approx(F.cross_entropy(logits, y).item(), abs=1e-12)
        assert accuracy[k, 1].item() == (logits.argmax(1) == y).double().mean().item()


def test_a_rate_can_be_changed_on_the_way(digits):
    many = program(digits, settings=SETTINGS[:2])
    many.run(5)
    many.set_lr(0, 0.0)
    before = many.parameters.clone()
    many.run(1)
    assert torch.equal(many.parameters[0], before[0])
    assert not torch.equal(many.parameters[1], before[1])


def test_a_batch_larger_than_the_data_is_refused(digits):
    with pytest.raises(ValueError, match="needs at least"):
        Program(FullyConnected(), SETTINGS, (0,), *digits, batch=5000)


@pytest.mark.cuda
def test_a_gpu_agrees_with_the_cpu(digits):
    x, y = digits
    here, there = (Program(SMALL["net 3"], SETTINGS, (3, 5), x.to(d), y.to(d), batch=32) for d in ("cpu", "cuda"))
    here.run(60)
    there.run(60)
    assert (here.parameters - there.parameters.cpu()).abs().max() <= 1e-8
