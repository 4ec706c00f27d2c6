"""What an exercise declares of its results is asked of every call, whatever the judge itself looks at."""

import functools
import math
import threading

import numpy as np
import pytest
import torch

from hpml_lab.core.judge import exercises
from hpml_lab.core.judge.declared import array, difference_in_kind, like, promise, share_memory, tensor
from hpml_lab.core.judge.exercises import Exercise, check
from hpml_lab.core.judge.expect import expect_function
from hpml_lab.core.judge.variations import KEPT, with_more_digits

LIKE_X = like("x")
X = torch.tensor([[1.0, 2.0, 4.0], [8.0, 16.0, 32.0]])


@pytest.fixture
def judged(monkeypatch):
    """Judge an answer f(x) against `right`, over one case, with what the exercise declares."""

    def judge_with(answer, right=lambda x: 2 * x, returns=LIKE_X, changes=(), cases=None, wrap=lambda f: f, **options):
        def judge(function):
            expect_function(wrap(function), right, cases or {"x": (X,)}, **options)

        monkeypatch.setitem(
            exercises._REGISTRY, "declared", Exercise("declared", "01_tensors", judge, ("x",), returns, changes)
        )
        return check("declared", answer)

    return judge_with


@pytest.mark.parametrize(
    "value, kind, mistake",
    [
        (3, int, None),
        (np.int64(3), int, None),
        (torch.tensor(3), int, None),
        (3.0, int, "wrong-type"),
        (torch.tensor([3]), int, "wrong-type"),
        ("3", float, "wrong-type"),
        (np.float32(3), float, None),
        (torch.tensor(3.0), float, None),
        (1, bool, None),
        (2, bool, "wrong-type"),
        (None, int | None, None),
        (4, int | None, None),
        ("x", int | None, "wrong-type"),
        ([1, 2], [int], None),
        ([1, 2.5], [int], "wrong-type"),
        (np.arange(2), [int], "wrong-type"),
        (np.arange(2), {int}, None),
        ({"a", "b"}, {str}, None),
        ("ab", {str}, "wrong-type"),
        ((1, 2), (float, float), None),
        (np.ones(2), (float, float), None),
        ((1, 2, 3), (float, float), "wrong-type"),
        ({"a": 1.0}, {str: float}, None),
        ({"a": None}, {str: float}, "wrong-type"),
        (torch.ones(2), tensor(), None),
        (torch.ones(2), tensor(int), "wrong-dtype"),
        (torch.ones(2, dtype=torch.bool), tensor(int), "wrong-dtype"),
        (torch.ones(2, dtype=torch.int8), tensor(int), None),
        (torch.ones(2), tensor("x"), None),
        (torch.ones(2).double(), tensor("x"), "wrong-dtype"),
        (np.ones(2), tensor(), "wrong-type"),
        (np.ones(2), array(np.float32), "wrong-dtype"),
        (torch.ones(2), array(np.float32), "wrong-type"),
        (object(), object, None),
        (3, None, None),
    ],
)
def test_a_kind_is_what_python_and_the_text_take_it_for(value, kind, mistake):
    found = difference_in_kind(value, kind, {"x": X})
    assert (found and found[0]) == mistake
    assert found is None or "should be" in found[1]


def test_a_difference_says_where_it_is():
    assert "At [1] the result" in difference_in_kind([1, "a"], [int], {})[1]
    assert "At ['b'] the result" in difference_in_kind({"a": 1, "b": "?"}, {str: int}, {})[1]


def test_a_promise_names_what_is_declared():
    assert promise(like("x")) == "a tensor of the dtype of `x`"
    assert promise((like("x", new=True), int)) == "(a new tensor of the dtype of `x`, a whole number)"
    assert promise((like("x"), like("x"), like("a"))) == "tensors of the dtypes of `x`, `x`, `a`"
    assert promise((like("x", new=True),) * 3) == "new tensors of the dtypes of `x`, `x`, `x`"
    assert promise((like("x"), like("x", new=True), int)).startswith("(a tensor of the dtype of `x`, a new tensor")
    assert promise(array(np.float32)) == "a NumPy array of float32" and promise((int, float)) == ""


def test_memory_is_shared_by_views_and_by_arrays_of_the_same_numbers():
    x = torch.arange(6.0)
    assert share_memory(x, x[4:]) and share_memory(x.numpy(), x) and share_memory(x.reshape(2, 3).T, x)
    assert not share_memory(x, x.clone()) and not share_memory(x[:0], torch.empty(0))


def test_a_right_answer_is_right(judged):
    assert judged(lambda x: x + x)


@pytest.mark.parametrize(
    "answer, mistake",
    [
        (lambda x: (2 * x).tolist(), "wrong-type"),
        (lambda x: 2 * x.numpy(), "wrong-type"),
        (lambda x: 2 * x.double(), "wrong-dtype"),
        (lambda x: None, "returns-nothing"),
        (lambda x: (2 * x.reshape(-1)).view(x.shape) if x.is_contiguous() else x, "one-layout"),
        (lambda x: 2 * x.view(-1).view(x.shape), "one-layout"),
        (lambda x: torch.matmul(x, 2 * torch.eye(3)), "one-dtype"),
        (lambda x: 2 * torch.tensor([[1.0, 2.0, 4.0], [8.0, 16.0, 32.0]]).to(x.dtype), "one-example"),
        (lambda x: (2 * x).clamp(max=1000), "one-scale"),
        (lambda x: (2 * x).clamp(min=0.5), "one-scale"),
        (lambda x: x.mul_(2), "inputs-changed"),
    ],
)
def test_faults_that_any_answer_can_have_are_named(judged, answer, mistake):
    verdict = judged(answer)
    assert verdict.mistake == mistake, verdict
    assert verdict.given is not None and len(verdict.given) == 1


def test_digits_that_float32_has_not_count_where_no_scale_does(judged):
    """A factor that all numbers have in common changes no standardized one."""

    def standardized(x):
        return (x - x.mean()) / x.std()

    assert judged(standardized, standardized)
    rounded = judged(lambda x: standardized(x.float().to(x.dtype)), standardized)
    assert rounded.mistake == "float32-on-the-way", rounded


def test_digits_are_added_to_every_number_and_equal_ones_stay_equal():
    x = torch.tensor([3.0, -3.0, 1.0, 0.0, math.inf])
    for value in (x, x.numpy(), torch.tensor(3.0), np.array(3.0)):
        [made] = map(torch.as_tensor, with_more_digits((value,), ["x"], ()))
        assert torch.equal(made.float(), torch.as_tensor(value)), "less than half of a last place"
        assert ((made == made.float()) == ((made == 0) | made.isinf())).all()
        assert made.ndim == 0 or made[0] == -made[1]


def test_the_arguments_of_the_failing_call_are_given(judged):
    verdict = judged(lambda x: 3 * x + 1)
    assert verdict.mistake == "wrong-value" and torch.equal(verdict.given[0], X)
    assert "then `your_function(*verdict.given)`" in verdict.message
    assert judged(lambda x: 1 / 0).given is not None
    assert "tensor(" not in repr(verdict)


def test_a_result_kept_from_an_earlier_call_is_found(judged):
    memory = {}

    def remembers_by_shape(x):
        return memory.setdefault((x.shape, x.dtype), 2 * x)

    assert judged(remembers_by_shape).mistake == "one-example"


def test_an_earlier_result_is_asked_for_only_where_it_was_seen(judged):
    kept, other = judged(lambda x: 2 * X.to(x.dtype)), judged(lambda x: 2 * x if x.max() >= X.max() else 2 * x + 1)
    assert kept.mistake == other.mistake == "one-example"
    assert KEPT in kept.message and KEPT not in other.message and "earlier call" not in other.message


@pytest.mark.parametrize("of", ["all", "the first"])
def test_a_result_that_no_scale_changes_is_found_when_it_is_kept(judged, of):
    """By shape, and by the first argument alone."""
    memory = {}

    def shares(x, y):
        return x / x.sum() + y / y.sum()

    def remembers(x, y):
        key = (x.shape, x.dtype) if of == "all" else (x.dtype, x.stride(), *x.flatten().tolist())
        return memory.setdefault(key, shares(x, y))

    one, other, third = torch.tensor([1.0, 2.0, 5.0]), torch.tensor([3.0, 1.0, 1.0]), torch.tensor([1.0, 1.0, 2.0])
    cases = {"two": (one, other), "the other two": (other, third)} if of == "the first" else {"two": (one, other)}
    verdict = judged(remembers, shares, cases=cases)
    assert verdict.mistake in ("one-example", "remembers-calls"), verdict
    assert judged(shares, shares, cases=cases)


def test_nan_is_known_by_its_value(judged):
    def by_identity(x):
        return [0.0 if value is math.nan else value for value in x]

    def right(x):
        return [0.0 if math.isnan(value) else value for value in x]

    cases = {"x": ([1.0, math.nan],)}
    assert judged(by_identity, right, [float], cases=cases).state == "mistake"
    assert judged(right, right, [float], cases=cases)


@pytest.mark.parametrize("answer", [lambda x: x, lambda x: x[:], lambda x: x.view(-1).view(x.shape)])
def test_new_is_no_argument_and_no_view_of_one(judged, answer):
    assert judged(answer, torch.clone, like("x", new=True)).mistake in ("not-new", "one-layout")
    assert judged(lambda x: x.clone(), torch.clone, like("x", new=True))


def test_new_is_not_what_an_earlier_call_has_returned(judged):
    buffer = torch.empty(2, 3)

    def into_a_buffer(x):
        return torch.mul(x, 2, out=buffer) if x.dtype == buffer.dtype else 2 * x

    assert judged(into_a_buffer, returns=like("x", new=True)).state == "mistake"


def test_an_argument_may_change_where_the_text_says_so(monkeypatch):
    def judge(function):
        assert torch.equal(function(X.clone()), 2 * X)

    for changes, mistake in ((("x",), ""), ((), "inputs-changed")):
        monkeypatch.setitem(exercises._REGISTRY, "declared", Exercise("declared", "01_tensors", judge, ("x",), LIKE_X, changes))
        assert check("declared", lambda x: x.mul_(2)).mistake == mistake


def test_a_right_value_with_a_wrong_gradient_is_found(judged):
    cases = {"x": (X.clone().requires_grad_(),)}
    assert judged(lambda x: x + x, cases=cases)
    assert judged(lambda x: x + x.detach(), cases=cases).mistake == "other-gradient"
    assert judged(lambda x: 2 * x.detach(), cases=cases).mistake == "detached"


def test_a_mask_in_a_class_is_replaced_by_the_second_call(judged):
    class Masked(torch.autograd.Function):
        mask = None

        @staticmethod
        def forward(ctx, x):
            Masked.mask = x > 1.5
            return x.clamp(min=1.5)

        @staticmethod
        def backward(ctx, gradient):
            return gradient * Masked.mask

    cases = {"x": (X.clone().requires_grad_(),), "x upside down": (X.flip(0).requires_grad_(),)}
    assert judged(Masked.apply, lambda x: x.clamp(min=1.5), cases=cases).mistake == "other-gradient"


def test_a_generator_and_a_coroutine_are_named_before_the_judge_runs(judged):
    def generator(x):
        yield 2 * x

    async def coroutine(x):
        return 2 * x

    async def both(x):
        yield 2 * x

    class Called:
        def __call__(self, x):
            yield 2 * x

    class Awaited:
        async def __call__(self, x):
            return 2 * x

    named = (generator, coroutine, both)
    answers = (*named, *map(functools.partial, named), Called(), Awaited())
    assert {judged(answer).mistake for answer in answers} == {"runs-nothing"}


@pytest.mark.parametrize("returns", [LIKE_X, None, object, [float], {float}])
def test_a_generator_behind_a_wrapper_is_named_by_what_it_returns(judged, returns):
    """Where nothing is returned, the judge sees only that nothing has changed."""

    def generator(x):
        yield 2 * x

    async def both(x):
        yield 2 * x

    async def coroutine(x):
        return 2 * x

    for made in (generator, both, coroutine):
        verdict = judged(lambda x, made=made: made(x), right=lambda x: [2.0], returns=returns)
        assert verdict.mistake == "runs-nothing", (made, verdict)


def test_what_is_gone_through_may_be_a_generator(judged):
    def numbers(x):
        yield from [1.0, 2.0]

    def by_list(function):
        return lambda x: list(function(x))

    assert judged(lambda x: numbers(x), by_list(numbers), {float}, wrap=by_list)
    assert judged(lambda x: (2 * row for row in x)).mistake == "wrong-type", "its lines have run"


def test_a_judge_that_fails_before_any_call_blames_nobody(monkeypatch):
    names = {}
    exec(compile("def judge(answer):\n    raise OSError('no space left on device')", exercises.__file__, "exec"), names)
    judge = names["judge"]  # a file of the package's: an error in one of the student's would be theirs
    monkeypatch.setitem(exercises._REGISTRY, "declared", Exercise("declared", "01_tensors", judge, ("x",), object))
    verdict = check("declared", lambda x: x)
    assert verdict.state == "not yet" and "no space left" in verdict.message and "was not called" in verdict.message


def test_without_a_thread_a_check_goes_on_and_says_that_it_has_no_limit(judged, monkeypatch):
    def refuse(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    verdict = judged(lambda x: x + x)
    assert verdict and exercises.NO_LIMIT in verdict.message
