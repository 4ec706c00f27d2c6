"""A rubric: the right answer as ordinary code, and the mistakes that students make in it, each as an edit with a hint.

    RUBRIC = Rubric(outer_sum, '''
    a[:, None] + b
        transposed :: a + b[:, None] :: Row i belongs to a[i].
        difference :: a[:, None] - b :: $SUM
    whole answer
        flat :: lambda a, b: outer_sum(a, b).ravel() :: Keep the shape,
            one row for each element of a.
    error
        shapes :: must match the size :: $SUM
    only in cases
        padding :: with padding :: Only the cases with padding are wrong.
    ''', SUM="Each number of a is added to each of b.")

    RUBRIC.expect(answer, {"a = [1, 2], b = [10, 20, 30]": (a, b)})

An unindented line is a fragment of the right answer's source. Each row below it is `name :: what stands there instead :: hint`,
and goes on in lines that are indented further. Under `whole answer` stands an expression for a function in the answer's place;
under `error`, a text in the error that an answer raises; under `only in cases`, one in the names of all cases that are wrong.
A hint reads well to a student whose answer nobody has seen, too, as `Mistake` describes: `hint()` shows each fragment's first.
Two mistakes in fragments that do not overlap are known together, too. A fragment that is not in the source raises when the
module is imported; `tests/core/test_core_rubric.py` compiles every row of every rubric.
"""

import copy
import inspect
import itertools
import re
import textwrap
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple

from hpml_lab.core.judge.asked import value_or_error
from hpml_lab.core.judge.expect import expect, expect_function
from hpml_lab.core.judge.in_every_case import OF_ANY
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.same import difference, same

MORE = "And it is not the only mistake."
UNKNOWN = ("wrong-value", "wrong-shape", "wrong-type")  # what `expect` says where it finds no known mistake
Function = Callable[..., Any]


class Edit(NamedTuple):
    """A row: the mistake's name, the text that stands in place of the fragment, and a hint."""

    name: str
    instead: str
    hint: str


class Judged(NamedTuple):
    """A case: its name, its arguments, what the answer made of them (or the error that it raised), and what is right."""

    case: str
    given: tuple[Any, ...]
    got: Any
    wanted: Any


def item(index: int) -> Callable[[Function], Function]:
    """What wraps an answer that returns several things, of which a rubric judges one."""
    return lambda answer: lambda *given: answer(*given)[index]


def by_part(*parts: str) -> Callable[[Function, list[Judged]], None]:
    """An `explain` for answers of several parts: the Mistake names the first that is wrong in some case, and says where."""

    def explain(_: Function, judged: list[Judged]) -> None:
        for (number, part), (case, _given, got, wanted) in itertools.product(enumerate(parts), judged):
            if not same(got[number], wanted[number]):
                wrong = difference(got[number], wanted[number])
                raise Mistake(f"wrong-{part.replace(' ', '-')}", f"For {case}, the {part} {wrong}.")

    return explain


class Rubric:
    """Known mistakes as edits of `right`, a function or a class.

    text   the table, as the module's docstring describes it
    wrap   makes of an answer the function that is called with a case, such as one that trains a net and returns its outputs
    given  the arguments of the one case of an exercise whose answer is a value: what `right` gives for them
    hints  texts that several rows share, as $NAME
    """

    def __init__(
        self,
        right: Function,
        text: str,
        *,
        wrap: Callable[[Function], Function] | None = None,
        given: tuple[Any, ...] | None = None,
        **hints: str,
    ) -> None:
        self.right, self.wrap, self.given = right, wrap or (lambda answer: answer), given
        self.source = textwrap.dedent(inspect.getsource(right))
        self._made: dict[tuple[tuple[str, str], ...], Function] = {}
        tables: dict[str, list[Edit]] = {}
        for line in re.sub(r"\n {8,}", " ", textwrap.dedent(text).strip()).splitlines():
            if not line.startswith(" "):
                rows = tables.setdefault(line, [])
            elif len(parts := [part.strip() for part in line.split(" :: ", 2)]) == 3:
                rows.append(Edit(*parts[:2], re.sub(r"\$([A-Z_0-9]+)", lambda found: hints[found[1]], parts[2])))
            elif line.strip():
                raise ValueError(f"not `name :: instead :: hint`: {line}")
        self.whole, self.errors, self.only = (tables.pop(name, []) for name in ("whole answer", "error", "only in cases"))
        self.edits = [(fragment, row) for fragment, rows in tables.items() for row in rows]
        if missing := [fragment for fragment in tables if fragment not in self.source]:
            raise ValueError(f"{missing} are not in\n{self.source}")

    def single(self) -> Iterator[tuple[str, Function, str]]:
        """(name, the right answer with this mistake alone, hint)."""
        for fragment, row in self.edits:
            yield row.name, self.edited((fragment, row.instead)), row.hint
        for row in self.whole:
            yield row.name, eval(row.instead, self.right.__globals__), row.hint

    def items(self) -> Iterator[tuple[str, tuple[Function, str]]]:
        """(name, (the wrapped answer with this mistake, hint)): single mistakes first, then two together."""
        for name, function, hint in self.single():
            yield name, (self.wrap(function), hint)
        for (one, row), (other, second) in itertools.combinations(self.edits, 2):
            if one not in other and other not in one:
                both = self.edited((one, row.instead), (other, second.instead))
                yield row.name, (self.wrap(both), f"{row.hint} {MORE}")

    def edited(self, *edits: tuple[str, str]) -> Function:
        """The right answer with each (fragment, what stands there instead)."""
        if edits not in self._made:
            names = dict(self.right.__globals__)
            source = re.sub("|".join(re.escape(one) for one, _ in edits), lambda found: dict(edits)[found[0]], self.source)
            exec(compile(source, inspect.getfile(self.right), "exec"), names)
            self._made[edits] = names[self.right.__name__]
        return self._made[edits]

    def expect(
        self,
        answer: Function,
        cases: Mapping[str, tuple[Any, ...]],
        *,
        tolerance: float = 1e-6,
        but: Collection[str] = (),
        explain: Callable[[Function, list[Judged]], None] | None = None,
    ) -> None:
        """Return if the answer agrees with `right` on all cases; else raise the Mistake that explains it.

        but      as for `expect_function`
        explain  is given the answer and the judged cases that did not raise, where no row explains it; it may raise a Mistake
        """
        answer, right = self.wrap(answer), self.wrap(self.right)
        errors = {row.instead: (row.name, row.hint) for row in self.errors}
        try:
            expect_function(answer, right, cases, mistakes=self, errors=errors, tolerance=tolerance, but=but)
        except Mistake as mistake:
            if mistake.name not in (*UNKNOWN, *OF_ANY):  # what an exercise knows of its own numbers goes first
                raise
            judged = [
                Judged(case, given, value_or_error(answer, copy.deepcopy(given)), right(*copy.deepcopy(given)))
                for case, given in cases.items()
            ]
            wrong = [row.case for row in judged if not same(row.got, row.wanted, tolerance)]
            for row in self.only if wrong else ():
                if all(row.instead in case for case in wrong):
                    raise Mistake(row.name, row.hint) from mistake
            if explain:
                explain(answer, [row for row in judged if not isinstance(row.got, Exception)])
            raise

    def expect_value(self, answer: Any, *, case: str, tolerance: float = 1e-6, reveal: bool = False) -> None:
        """Return if the answer is the value of `right(*given)`; else raise the Mistake that explains it.

        case, reveal  as for `expect`
        """
        mistakes = {f"{name}, {i}": (function(*self.given), hint) for i, (name, (function, hint)) in enumerate(self.items())}
        expect(answer, self.right(*self.given), case=case, mistakes=mistakes, tolerance=tolerance, reveal=reveal)
